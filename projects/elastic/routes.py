"""Register inference engines with the router and deregister them.

All calls are idempotent. An engine's row is stored before the router is called, so the next leader can clean
up after a crash.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from berth.db.loops.crash_points import assert_no_transaction, crash_point
from projects.elastic.probes import NO_PROBE
from projects.elastic.reconcile_context import Fence
from projects.elastic.transitions import engine_facts
from projects.elastic.view import ServiceView
from projects.engine.inference_engines import may_serve
from projects.models import InferenceEngine
from projects.services.inference.transitions import record_observations
from projects.serving.base import ErrorKind, RouterClient, ServingError, Worker

log = logging.getLogger(__name__)

COMPARISON_INTERVAL = timedelta(seconds=5)
NOT_ROUTED_STATES = ("CREATING", "CONNECTING", "HEALTH_CHECKING", "REMOVING", "REMOVED", "FAILED")


def update_router(view: ServiceView, router: RouterClient | None, fence: Fence, now: datetime) -> bool:
    """Bring the router's list of inference engines up to date. Return whether anything changed."""
    changed = False
    for engine in view.engines:
        changed |= (
            _isolate_without_router(engine, fence, now)
            if router is None
            else _update_engine(engine, view, router, fence, now)
        )
    return changed


def mark_lost_engines(view: ServiceView, router: RouterClient | None, fence: Fence) -> None:
    """Mark engines as unregistered if a restarted router no longer lists them, so that Berth adds the engines
    again.
    """
    assert_no_transaction()
    if router is None or not any(engine.is_routed for engine in view.engines):
        return
    try:
        registered: Mapping[str, Worker] = {worker.address: worker for worker in router.workers()}
    except ServingError as error:
        log.warning("could not list the engines of the router of %s: %s", view.service, error)
        return
    for engine in view.engines:
        if engine.is_routed and engine.isolated_at is None and engine.router_url not in registered:
            with fence():
                record_observations(engine, is_routed=False, isolated_at=None)


def should_route(engine: InferenceEngine, view: ServiceView, now: datetime) -> bool:
    """Return whether the router should send requests to the inference engine."""
    current = view.service.weight_version
    is_stale = bool(current) and engine.weight_version != current
    facts = engine_facts(engine, view, NO_PROBE, has_router=True, now=now)
    return engine.is_healthy and may_serve(facts, is_stale=is_stale)


def _isolate_without_router(engine: InferenceEngine, fence: Fence, now: datetime) -> bool:
    """Mark a draining engine as isolated.

    Return False if it was already marked or is not draining. Without a router, the clients themselves must
    stop sending requests to the engine.
    """
    if engine.state != "DRAINING" or engine.isolated_at is not None:
        return False
    with fence():
        record_observations(engine, isolated_at=now)
    return True


def _update_engine(
    engine: InferenceEngine, view: ServiceView, router: RouterClient, fence: Fence, now: datetime
) -> bool:
    assert_no_transaction()
    try:
        if engine.state in NOT_ROUTED_STATES or (engine.router_url and engine.router_url != engine.url):
            return _unregister(engine, view, router, fence)
        if should_route(engine, view, now):
            return _register(engine, view, router, fence)
        return _isolate_engine(engine, router, fence, now)
    except ServingError as error:
        log.warning("could not update the router of %s for %s: %s", view.service, engine.name, error)
        with fence():
            record_observations(engine, router_message=str(error))
        return False


def _unregister(engine: InferenceEngine, view: ServiceView, router: RouterClient, fence: Fence) -> bool:
    if not engine.router_url:
        return False
    others = [other for other in view.engines if other.pk != engine.pk]
    if not any(other.router_url == engine.router_url for other in others):
        router.unregister(engine.router_url)
    crash_point("services.unregistered")
    with fence():
        record_observations(engine, router_url="", is_routed=False, isolated_at=None, router_message="")
    return True


def _register(engine: InferenceEngine, view: ServiceView, router: RouterClient, fence: Fence) -> bool:
    if engine.is_routed and engine.isolated_at is None:
        return False
    if engine.is_routed:
        router.mark_healthy(engine.url)
        crash_point("services.marked")
    else:
        with fence():
            record_observations(engine, router_url=engine.url)
        crash_point("services.before_register")
        router.register(engine.url, model=view.service.model_name)
        crash_point("services.registered")
    with fence():
        record_observations(engine, is_routed=True, isolated_at=None, router_message="")
    return True


def _isolate_engine(engine: InferenceEngine, router: RouterClient, fence: Fence, now: datetime) -> bool:
    if engine.isolated_at is not None:
        return False
    if not engine.router_url:
        return _isolate_without_router(engine, fence, now)
    try:
        router.mark_unhealthy(engine.router_url)
    except ServingError as error:
        if error.kind is not ErrorKind.REJECTED or _is_registered(router, engine.router_url):
            raise  # otherwise, the engine is not registered and receives no requests
    crash_point("services.isolated")
    with fence():
        record_observations(engine, isolated_at=now)
    return True


def _is_registered(router: RouterClient, url: str) -> bool:
    return any(worker.address == url for worker in router.workers())
