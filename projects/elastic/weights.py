"""Copy weights from initial engines to added ones.

While weights are copied, a mark in the service's row keeps trainers from changing them; while a trainer
changes them, nothing is copied. A mark that a dead process left is taken away by whoever leads next.
"""

import logging
import uuid
from datetime import datetime, timedelta

from berth.db.crash_points import crash_point, outside_transactions
from projects.elastic.looks import healthy_initial
from projects.elastic.ports import Fence, Ports
from projects.elastic.view import View
from projects.models import Engine, Service
from projects.services.inference.moves import note
from projects.serving.base import EngineAdapter, ServingError, Trouble
from projects.serving.weight_sync import take_over

log = logging.getLogger(__name__)

AGAIN = timedelta(seconds=30)  # after a copy that failed
COPY_SECONDS = 600.0
COPYING = "copying"


def follow(view: View, fence: Fence) -> None:
    """The version of the service is that of its healthy initial engines, once they agree on one."""
    if not view.spec.weight_sync or view.service.updating_since is not None:
        return
    versions = {engine.weight_version for engine in healthy_initial(view.engines)}
    if len(versions) != 1:
        return
    version = versions.pop()
    if version and version != view.service.weight_version:
        with fence():
            Service.objects.filter(pk=view.service.pk).update(weight_version=version)
        view.service.weight_version = version


def copy(view: View, ports: Ports, now: datetime) -> bool:
    """One engine in each pass: copies between the same seed and several others would disturb each other."""
    if not view.spec.weight_sync or view.service.updating_since is not None:
        return False
    for engine in view.engines:
        if engine.sync == COPYING:
            _recover(engine, view, ports)
    due = [engine for engine in view.engines if _is_due(engine, view, now)]
    if not due:
        return False
    engine = min(
        due, key=lambda one: (one.state == "ACTIVE", one.sync_tried_at or one.created_at, one.number)
    )
    adapter = ports.engines(view.spec.engine, engine.origin != "external")
    _copy(engine, view, adapter, ports.fence, now)
    return True


def forget_marks(fence: Fence) -> None:
    """For a new leader: nobody else copies."""
    with fence():
        Service.objects.filter(syncing_since__isnull=False).update(syncing_since=None)


def _is_due(engine: Engine, view: View, now: datetime) -> bool:
    if engine.origin == "initial" or engine.state not in ("WEIGHT_SYNCING", "READY", "ACTIVE"):
        return False
    if view.spec.weight_consistency == "strict" and engine.state == "ACTIVE" and not _is_apart(engine, view):
        return False  # the router is told first
    stale = view.service.weight_version not in ("", engine.weight_version)
    if engine.state == "WEIGHT_SYNCING":
        return engine.sync == "" or (engine.sync == "done" and stale)
    tried = engine.sync_tried_at
    waits = engine.sync == "failed" and tried is not None and tried <= now < tried + AGAIN
    return stale and engine.is_healthy and not waits


def _is_apart(engine: Engine, view: View) -> bool:
    return view.spec.router is None or engine.isolated_at is not None or not engine.is_routed


def _copy(engine: Engine, view: View, adapter: EngineAdapter, fence: Fence, now: datetime) -> None:
    outside_transactions()
    if not _mark(view.service, engine, fence, now):
        return
    crash_point("services.marked_sync")
    try:
        version = _carried_over(engine, view, adapter)
        outcome = {"sync": "done", "weight_version": version, "sync_message": ""}
    except ServingError as error:
        log.warning("the weights of %s of %s were not copied: %s", engine.name, view.service, error)
        outcome = {"sync": "failed", "sync_message": error.message}
    crash_point("services.copied")
    with fence():
        note(engine, sync_tried_at=now, **outcome)
        Service.objects.filter(pk=view.service.pk).update(syncing_since=None)


def _mark(service: Service, engine: Engine, fence: Fence, now: datetime) -> bool:
    with fence():
        rows = Service.objects.filter(pk=service.pk, updating_since__isnull=True, syncing_since__isnull=True)
        if not rows.update(syncing_since=now):
            return False
        note(engine, sync=COPYING, sync_tried_at=now)
    return True


def _recover(engine: Engine, view: View, ports: Ports) -> None:
    """Whoever copied died over it: the engine may be paused, and nobody else would let it go on."""
    outside_transactions()
    if engine.url:
        try:
            ports.engines(view.spec.engine, engine.origin != "external").resume(engine.url)
        except ServingError as error:
            log.warning("%s of %s, left in a copy, does not go on: %s", engine.name, view.service, error)
    with ports.fence():
        note(engine, sync="", sync_message="A copy of weights was cut short.")
        Service.objects.filter(pk=view.service.pk).update(syncing_since=None)


def _carried_over(engine: Engine, view: View, adapter: EngineAdapter) -> str:
    """From the first healthy initial engine. Returns the version that it has now."""
    seeds = healthy_initial(view.engines)
    if not seeds:
        raise ServingError(Trouble.REFUSED, engine.url, "there is no healthy initial engine")
    group = f"berth-{uuid.uuid4().hex}"
    return take_over(adapter, seeds[0].url, engine.url, group=group, seconds=COPY_SECONDS)
