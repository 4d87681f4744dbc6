"""Turn probe results into state changes of engines and requests."""

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from projects.elastic.children import create_engines, dismiss
from projects.elastic.looks import NOTHING, Look
from projects.elastic.view import View
from projects.engine import engines as mind
from projects.engine import requests as request_mind
from projects.engine.engines import EngineFacts
from projects.engine.scaling import ENDED
from projects.models import Engine, ScaleRequest, Service
from projects.services.inference.moves import enter, note, shift

UNHEALTHY_AFTER = 3  # checks in a row
WRITTEN_OFF_AFTER = timedelta(hours=1)


def settle(view: View, looks: Mapping[uuid.UUID, Look], has_router: bool, now: datetime) -> bool:
    """In the caller's transaction, with the service's row locked and `view` read since. True: it moved."""
    moved = False
    for engine in view.engines:
        if engine.state not in ENDED:
            _take_in(engine, looks.get(engine.pk), now)
            moved |= _move_engine(engine, view, looks.get(engine.pk, NOTHING), has_router, now)
    if view.request is not None:
        moved |= _move_request(view.request, view, now)
    elif view.has_ended and view.service.ended_at is None and _nothing_is_owed(view, now):
        Engine.objects.filter(service=view.service).update(router_url="", is_routed=False)
        Service.objects.filter(pk=view.service.pk).update(ended_at=now)
        moved = True
    return moved


def _nothing_is_owed(view: View, now: datetime) -> bool:
    """A router that did not come back for so long is not waited for: the service has ended without it."""
    return all(e.ended_at is not None and now - e.ended_at >= WRITTEN_OFF_AFTER for e in view.engines)


def facts_of(engine: Engine, view: View, found: Look, has_router: bool, now: datetime) -> EngineFacts:
    standing, spec = view.standings[engine.pk], view.spec
    isolated = engine.isolated_at
    leaving = engine.removed_by if engine.removed_by_id else None
    return EngineFacts(
        state=engine.state,
        origin=engine.origin,
        place=standing.place,
        trouble=standing.trouble or engine.sync_message,
        started_once=standing.started_once,
        connected=found.connected,
        refusal=found.refusal,
        connection_failures=engine.connection_failures,
        connection_error=found.trouble if found.unreachable else "",
        healthy=found.healthy,
        has_router=has_router,
        is_routed=engine.is_routed and engine.router_url == engine.url,
        told_router=engine.router_url != "",
        gave_up_router=_gave_up(engine, spec.scale_in_shutdown_timeout, now),
        weight_sync=spec.weight_sync and engine.origin != "initial",
        strict=spec.weight_consistency == "strict",
        sync=engine.sync,
        isolated=None if isolated is None else max(0.0, (now - isolated).total_seconds()),
        running=found.running,
        drain_timeout=spec.scale_in_drain_timeout,
        force=leaving is not None and leaving.force,
        ends_as=engine.ends_as,
    )


def _gave_up(engine: Engine, patience: float, now: datetime) -> bool:
    """A router that is down does not keep GPUs. Its entry is still owed, and is taken out once it is back."""
    return engine.state == "REMOVING" and (now - engine.since).total_seconds() > patience


def _take_in(engine: Engine, found: Look | None, now: datetime) -> None:
    if found is None:
        return
    seen: dict[str, Any] = {"looked_at": now}
    if found.healthy is not None:
        failures = 0 if found.healthy else engine.failures + 1
        healthy = found.healthy or (engine.is_healthy and failures < UNHEALTHY_AFTER)
        seen |= {"failures": failures, "is_healthy": healthy}
    if engine.origin == "external" and engine.state != "ACTIVE":
        seen["connection_failures"] = engine.connection_failures + 1 if found.unreachable else 0
    if found.weight_version is not None:
        seen["weight_version"] = found.weight_version[:200]
    if engine.state == "DRAINING":
        seen["running"] = found.running
    if found.trouble and engine.state != "ACTIVE":
        seen["message"] = found.trouble
    note(engine, **seen)


def _move_engine(engine: Engine, view: View, found: Look, has_router: bool, now: datetime) -> bool:
    if view.has_ended and engine.origin != "initial" and engine.state not in ("DRAINING", "REMOVING"):
        return _leave(engine, "REMOVED", "", "The service has ended.", now)
    move = mind.next_state(facts_of(engine, view, found, has_router, now))
    if move is None:
        return False
    if move.to == "REMOVING":
        return _leave(engine, move.ends_as, move.failure, move.message, now)
    kept = engine.message if engine.state == "REMOVING" else ""  # why it goes is also why it is gone
    columns: dict[str, Any] = {"message": move.message or kept}
    standing = view.standings[engine.pk]
    if engine.state == "CREATING":
        columns |= {"url": standing.url, "pod_id": standing.pod_id, "failures": 0, "is_healthy": False}
    if move.to == "CREATING":
        columns |= {"pod_id": None, "url": "", "is_healthy": False, "sync": "", "weight_version": ""}
    return shift(engine, move.to, now=now, **columns)


def _leave(engine: Engine, ends_as: str, failure: str, message: str, now: datetime) -> bool:
    """Towards its end. A request that it belongs to tells of the cause, so it is kept."""
    said = message or engine.message
    moved = shift(
        engine, "REMOVING", now=now, ends_as=ends_as, failure=failure, message=said, is_healthy=False
    )
    if moved:
        dismiss(engine, now)
    return moved


def _move_request(request: ScaleRequest, view: View, now: datetime) -> bool:
    mine = _engines_of(request)
    _follow(request, mine, now)  # a person may have entered its status, by a cancel
    move = request_mind.next_status(
        request_mind.RequestFacts(
            direction=request.direction, mode=request.mode, status=request.status,
            engines=[_brief(engine) for engine in mine], policy=request.policy or "rollback_all",
            ends_as=request.ends_as, error=request.error_message, overdue=now >= request.deadline,
            weights_change=_weights_change(view.service), service_ended=view.has_ended,
        )
    )  # fmt: skip
    if move is None:
        return False
    if move.give_up:
        _give_up(request, [engine for engine in mine if engine.name in move.give_up], move, now)
    if not move.to:
        return True
    columns = _told(request, move, mine)
    if not enter(request, move.to, now=now, message=move.message, **columns):
        return False
    if move.to in ("CREATING", "CONNECTING"):
        create_engines(request, now)
    _follow(request, mine, now)
    return True


def _told(request: ScaleRequest, move: request_mind.RequestMove, mine: list[Engine]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if move.ends_as:
        columns["ends_as"] = move.ends_as
    if move.failure:
        columns["failure"] = move.failure
    if move.message:
        columns["error_message"] = move.message
    if request.direction == "scale_out":
        broken = [engine for engine in mine if _brief(engine).failed]
        versions = {engine.weight_version for engine in mine if engine.weight_version}
        columns |= {"weight_version": versions.pop() if len(versions) == 1 else ""}
    else:
        broken = [engine for engine in mine if engine.state not in ENDED] if move.to == "COMPLETED" else []
    known = {one["engine_id"] for one in request.failed_engines}
    more = [_failure(engine) for engine in broken if engine.name not in known]
    return columns | {"failed_engines": [*request.failed_engines, *more]}


def _follow(request: ScaleRequest, mine: list[Engine], now: datetime) -> None:
    """What a status sets going; again does no harm."""
    if request.status == "ROLLING_BACK":
        for engine in mine:
            if engine.state not in (*ENDED, "DRAINING", "REMOVING"):
                _let_go(engine, now)
    elif request.status == "DRAINING":
        for engine in mine:
            if engine.state not in (*ENDED, "DRAINING", "REMOVING"):
                shift(engine, "DRAINING", now=now)


def _let_go(engine: Engine, now: datetime) -> None:
    """What already serves is drained like any other; the rest goes at once."""
    if engine.is_routed:
        shift(engine, "DRAINING", now=now, message="Rolled back.")
    else:
        _leave(engine, "REMOVED", "", engine.message or "Rolled back.", now)


def _give_up(
    request: ScaleRequest, late: list[Engine], move: request_mind.RequestMove, now: datetime
) -> None:
    failed = [
        *request.failed_engines,
        *({**_failure(engine), "failure": move.failure, "message": move.message} for engine in late),
    ]
    for engine in late:
        if request.direction == "scale_out":
            _leave(engine, "FAILED", move.failure, move.message, now)
        else:
            shift(engine, "ACTIVE", now=now, removed_by=None)
    request.failed_engines, request.error_message = failed, move.message
    request.updated_at = now
    request.save(update_fields=["failed_engines", "error_message", "updated_at"])


def _engines_of(request: ScaleRequest) -> list[Engine]:
    rows = request.added if request.direction == "scale_out" else request.removed
    found = list(rows.select_related("workload").order_by("number"))
    for engine in found:
        engine.service = request.service
    return found


def _brief(engine: Engine) -> request_mind.EngineBrief:
    return request_mind.EngineBrief(
        engine.name, engine.state, engine.ends_as, engine.failure, engine.message,
        engine.isolated_at is not None, engine.router_message != "",
    )  # fmt: skip


def _failure(engine: Engine) -> dict[str, str]:
    return {
        "engine_id": engine.name, "url": engine.url, "failure": engine.failure, "message": engine.message,
    }  # fmt: skip


def _weights_change(service: Service) -> bool:
    return service.updating_since is not None or service.syncing_since is not None
