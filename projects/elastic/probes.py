"""Probe inference engines concurrently, without writing to the database."""

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from berth.db.loops.crash_points import assert_no_transaction
from projects.elastic.reconcile_context import ReconcileContext
from projects.elastic.view import ServiceView
from projects.engine.inference_engines import ProcessState
from projects.models import InferenceEngine
from projects.serving.base import (
    EngineAdapter,
    ErrorKind,
    Identity,
    RouterClient,
    ServingError,
    differing_parameters,
)

T = TypeVar("T")

MAX_CONCURRENT = 8
# Probe interval of active engines. Starting and draining engines are probed in every pass.
PROBE_INTERVAL = timedelta(seconds=5)
RETRY_INTERVAL = timedelta(seconds=2)  # delay before a failed connection is retried
PROBED_EVERY_PASS = ("CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "DRAINING")
NO_CONNECTION = (ErrorKind.UNREACHABLE, ErrorKind.TIMEOUT)
PERMANENT = (ErrorKind.FORBIDDEN, ErrorKind.REJECTED, ErrorKind.UNREADABLE, ErrorKind.UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class Probe:
    """Result of probing an inference engine.

    `healthy` is None if health was not checked. `rejection` says why the engine cannot join the service.
    `unreachable` is True if it did not respond.
    """

    healthy: bool | None = None
    connected: bool | None = None
    rejection: str = ""
    running: int | None = None
    weight_version: str | None = None
    error: str = ""
    unreachable: bool = False


NO_PROBE = Probe()


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """Clients and configuration that a probe needs, without database rows."""

    kind: str
    reconcile_context: ReconcileContext
    router: RouterClient | None
    model: str
    seed: Identity | None
    drain_timeout: float
    now: datetime
    copies_weights: bool = False

    def adapter(self, engine: InferenceEngine) -> EngineAdapter:
        return self.reconcile_context.engines(self.kind, engine.origin != "external")


def probe_engines(
    view: ServiceView, reconcile_context: ReconcileContext, router: RouterClient | None, now: datetime
) -> dict[uuid.UUID, Probe]:
    assert_no_transaction()
    due = [engine for engine in view.engines if _is_due(engine, view, now)]
    if not due:
        return {}
    seed = (
        _seed_identity(view, reconcile_context)
        if any(engine.state == "CONNECTING" for engine in due)
        else None
    )
    counts = view.spec
    context = ProbeContext(
        counts.engine, reconcile_context, router, view.service.model_name, seed,
        counts.scale_in_drain_timeout, now, counts.weight_sync,
    )  # fmt: skip
    if len(due) == 1:
        return {due[0].pk: _probe_engine(due[0], context)}
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        return dict(zip([e.pk for e in due], pool.map(lambda e: _probe_engine(e, context), due), strict=True))


def _is_due(engine: InferenceEngine, view: ServiceView, now: datetime) -> bool:
    if view.processes[engine.pk].process_state is not ProcessState.RUNNING or not engine.url:
        return False
    if engine.state in PROBED_EVERY_PASS:
        return not engine.connection_failures or _has_pause_passed(engine, RETRY_INTERVAL, now)
    return engine.state == "ACTIVE" and _has_pause_passed(engine, PROBE_INTERVAL, now)


def _has_pause_passed(engine: InferenceEngine, pause: timedelta, now: datetime) -> bool:
    """Return whether a probe is due: there was none, `pause` has passed, or the clock was set back."""
    return engine.looked_at is None or not engine.looked_at <= now < engine.looked_at + pause


def _probe_engine(engine: InferenceEngine, context: ProbeContext) -> Probe:
    if engine.state == "CONNECTING":
        return _connect_engine(engine.url, context.adapter(engine), context)
    if engine.state == "DRAINING":
        return _probe_draining_engine(engine, context)
    adapter = context.adapter(engine)
    try:
        adapter.check_health(engine.url)
    except ServingError as error:
        return Probe(healthy=False, error=str(error), unreachable=error.kind in NO_CONNECTION)
    version = None
    if context.copies_weights and (engine.origin == "initial" or engine.state == "WEIGHT_SYNCING"):
        version = _try_call(lambda: adapter.weight_version(engine.url))
    return Probe(healthy=True, weight_version=version)


def _connect_engine(url: str, adapter: EngineAdapter, context: ProbeContext) -> Probe:
    """Check that the engine serves the model with the same parameters as the initial engines."""
    try:
        identity = adapter.identity(url)
    except ServingError as error:
        return Probe(
            connected=False if error.kind in PERMANENT else None, rejection=str(error), error=str(error),
            unreachable=error.kind in NO_CONNECTION,
        )  # fmt: skip
    if context.seed is not None and (differing := differing_parameters(context.seed, identity)):
        return Probe(
            connected=False, rejection=f"{url} differs from the initial engines in: {', '.join(differing)}."
        )
    if context.seed is None and context.model not in ("default", identity.model):
        return Probe(connected=False, rejection=f"{url} serves {identity.model}, not {context.model}.")
    return Probe(connected=True, weight_version=identity.weight_version)


def _probe_draining_engine(engine: InferenceEngine, context: ProbeContext) -> Probe:
    since, adapter = engine.isolated_at, context.adapter(engine)
    if since is not None and (context.now - since).total_seconds() >= context.drain_timeout:
        _try_call(lambda: adapter.abort(engine.url))
    counts = [_try_call(lambda: adapter.unfinished_requests(engine.url))]
    if context.router is not None:
        router = context.router
        counts.append(_try_call(lambda: router.unfinished_requests(engine.url)))
    known_counts = [count for count in counts if count is not None]
    return Probe(running=max(known_counts) if known_counts else None)


def _seed_identity(view: ServiceView, reconcile_context: ReconcileContext) -> Identity | None:
    adapter = reconcile_context.engines(view.spec.engine, True)
    for engine in healthy_initial_engines(view.engines):
        identity = _try_call(partial(adapter.identity, engine.url))
        if identity is not None:
            return identity
    return None


def healthy_initial_engines(engines: Iterable[InferenceEngine]) -> list[InferenceEngine]:
    return [e for e in engines if e.origin == "initial" and e.state == "ACTIVE" and e.is_healthy]


def _try_call(call: Callable[[], T]) -> T | None:
    """Return the result of the call, or None if it raises ServingError."""
    try:
        return call()
    except ServingError:
        return None
