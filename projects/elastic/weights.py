"""Copy weights from initial inference engines to added engines.

Weights are never copied while a trainer changes them.
"""

import logging
import uuid
from datetime import datetime, timedelta

from berth.db.loops.crash_points import assert_no_transaction, crash_point
from projects.elastic.probes import healthy_initial_engines
from projects.elastic.reconcile_context import Fence, ReconcileContext
from projects.elastic.view import ServiceView
from projects.models import InferenceEngine, Service
from projects.services.inference.transitions import record_observations
from projects.serving.base import EngineAdapter, ErrorKind, ServingError
from projects.serving.weight_sync import copy_weights

log = logging.getLogger(__name__)

RETRY_AFTER = timedelta(seconds=30)  # delay after a failed copy
COPY_SECONDS = 600.0
COPYING = "copying"


def update_version(view: ServiceView, fence: Fence) -> None:
    """Set the service's weight version once all healthy initial inference engines report the same version."""
    if not view.spec.weight_sync or view.service.updating_since is not None:
        return
    versions = {engine.weight_version for engine in healthy_initial_engines(view.engines)}
    if len(versions) != 1:
        return
    version = versions.pop()
    if version and version != view.service.weight_version:
        with fence():
            Service.objects.filter(pk=view.service.pk).update(weight_version=version)
        view.service.weight_version = version


def copy_to_next_engine(view: ServiceView, reconcile_context: ReconcileContext, now: datetime) -> bool:
    """Copy weights to the next outdated inference engine. Return whether a copy was attempted."""
    if not view.spec.weight_sync or view.service.updating_since is not None:
        return False
    for engine in view.engines:
        if engine.sync == COPYING:
            _resume_interrupted_engine(engine, view, reconcile_context)
    due = [engine for engine in view.engines if _is_due(engine, view, now)]
    if not due:
        return False
    engine = min(
        due,
        key=lambda engine: (
            engine.state == "ACTIVE",
            engine.sync_tried_at or engine.created_at,
            engine.number,
        ),
    )
    adapter = reconcile_context.engines(view.spec.engine, engine.origin != "external")
    _copy_weights(engine, view, adapter, reconcile_context.fence, now)
    return True


def reset_interrupted_syncs(fence: Fence) -> None:
    """Mark all weight syncs as no longer in progress.

    Only a new leader calls this, before any copying starts.
    """
    with fence():
        Service.objects.filter(syncing_since__isnull=False).update(syncing_since=None)


def _is_due(engine: InferenceEngine, view: ServiceView, now: datetime) -> bool:
    if engine.origin == "initial" or engine.state not in ("WEIGHT_SYNCING", "READY", "ACTIVE"):
        return False
    if (
        view.spec.weight_consistency == "strict"
        and engine.state == "ACTIVE"
        and not _is_isolated(engine, view)
    ):
        return False  # the router must isolate the engine first
    stale = view.service.weight_version not in ("", engine.weight_version)
    if engine.state == "WEIGHT_SYNCING":
        return engine.sync == "" or (engine.sync == "done" and stale)
    tried_at = engine.sync_tried_at
    is_waiting = engine.sync == "failed" and tried_at is not None and tried_at <= now < tried_at + RETRY_AFTER
    return stale and engine.is_healthy and not is_waiting


def _is_isolated(engine: InferenceEngine, view: ServiceView) -> bool:
    return view.spec.router is None or engine.isolated_at is not None or not engine.is_routed


def _copy_weights(
    engine: InferenceEngine, view: ServiceView, adapter: EngineAdapter, fence: Fence, now: datetime
) -> None:
    assert_no_transaction()
    if not _record_sync_start(view.service, engine, fence, now):
        return
    crash_point("services.marked_sync")
    try:
        version = _copy_from_initial_engine(engine, view, adapter)
        outcome = {"sync": "done", "weight_version": version, "sync_message": ""}
    except ServingError as error:
        log.warning("could not copy weights to %s of %s: %s", engine.name, view.service, error)
        outcome = {"sync": "failed", "sync_message": error.message}
    crash_point("services.copied")
    with fence():
        record_observations(engine, sync_tried_at=now, **outcome)
        Service.objects.filter(pk=view.service.pk).update(syncing_since=None)


def _record_sync_start(service: Service, engine: InferenceEngine, fence: Fence, now: datetime) -> bool:
    with fence():
        rows = Service.objects.filter(pk=service.pk, updating_since__isnull=True, syncing_since__isnull=True)
        if not rows.update(syncing_since=now):
            return False
        record_observations(engine, sync=COPYING, sync_tried_at=now)
    return True


def _resume_interrupted_engine(
    engine: InferenceEngine, view: ServiceView, reconcile_context: ReconcileContext
) -> None:
    """Resume an inference engine that was left paused when a process died during a copy."""
    assert_no_transaction()
    if engine.url:
        try:
            reconcile_context.engines(view.spec.engine, engine.origin != "external").resume(engine.url)
        except ServingError as error:
            log.warning(
                "could not resume %s of %s after an interrupted copy: %s", engine.name, view.service, error
            )
    with reconcile_context.fence():
        record_observations(engine, sync="", sync_message="A weight copy was interrupted.")
        Service.objects.filter(pk=view.service.pk).update(syncing_since=None)


def _copy_from_initial_engine(engine: InferenceEngine, view: ServiceView, adapter: EngineAdapter) -> str:
    """Copy weights from the first healthy initial inference engine. Return the copied version."""
    seeds = healthy_initial_engines(view.engines)
    if not seeds:
        raise ServingError(ErrorKind.REJECTED, engine.url, "no initial engine is healthy")
    group = f"berth-{uuid.uuid4().hex}"
    return copy_weights(adapter, seeds[0].url, engine.url, group=group, seconds=COPY_SECONDS)
