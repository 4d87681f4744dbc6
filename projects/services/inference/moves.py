"""State changes of scale requests and engines: by compare-and-set, with a row for each request step."""

from datetime import datetime
from typing import Any

from django.db.models import F

from projects.engine import scaling
from projects.models import Engine, ScaleRequest, ScaleStep, Scaling
from projects.services import announce, events


def open_request(request: ScaleRequest, *, message: str = "") -> None:
    """The first row of its history, in the caller's transaction."""
    request.save(force_insert=True)
    ScaleStep.objects.create(
        request=request, at=request.created_at, status=request.status, message=message or request.reason
    )
    announce.workload_changed(request.service.workload)


def enter(request: ScaleRequest, to: str, *, now: datetime, message: str = "", **columns: Any) -> bool:
    """True if the request still stood where we saw it and now stands in `to`."""
    allowed = scaling.request_moves(request.direction)
    assert to in allowed[request.status], f"no move from {request.status} to {to}"
    if to in scaling.FINAL:
        columns["ended_at"] = now
    changed = ScaleRequest.objects.filter(pk=request.pk, status=request.status).update(
        status=to, updated_at=now, **columns
    )
    if not changed:
        return False
    for name, value in {"status": to, "updated_at": now, **columns}.items():
        setattr(request, name, value)
    ScaleStep.objects.create(request=request, at=now, status=to, message=message)
    if to in scaling.FINAL:
        _close_scaling(request, now)
    announce.workload_changed(request.service.workload)
    return True


def shift(engine: Engine, to: str, *, now: datetime, **columns: Any) -> bool:
    """True if the engine still stood where we saw it and now stands in `to`."""
    assert to in scaling.ENGINE[engine.state], f"no move from {engine.state} to {to}"
    if to in scaling.ENDED:
        columns["ended_at"] = now
    changed = Engine.objects.filter(pk=engine.pk, state=engine.state).update(state=to, since=now, **columns)
    if not changed:
        return False
    for name, value in {"state": to, "since": now, **columns}.items():
        setattr(engine, name, value)
    if to == "FAILED":
        _record_failure(engine)
    announce.workload_changed(engine.service.workload)
    return True


def _record_failure(engine: Engine) -> None:
    """Keep the reason in the service's history: the engine leaves every list of live engines."""
    data = {"engine": engine.name, "url": engine.url, "failure": engine.failure}
    reason = engine.message or "No reason was reported."
    message = f"{engine.name} failed: {reason}"
    events.record("engine_failed", engine.service.workload, message, actor="services", data=data)


def note(engine: Engine, **columns: Any) -> None:
    """What was seen of it, without a move."""
    stale = {name: value for name, value in columns.items() if getattr(engine, name) != value}
    if not stale:
        return
    Engine.objects.filter(pk=engine.pk).update(**stale)
    for name, value in stale.items():
        setattr(engine, name, value)


def _close_scaling(request: ScaleRequest, now: datetime) -> None:
    """What the autoscaler did is told to the end. How many engines there are is counted, not hoped for."""
    live = Engine.objects.filter(service=request.service, ended_at__isnull=True)
    count = live.exclude(state__in=scaling.LEAVING).count()
    status = "ACTIVE" if request.status == "PARTIAL" else request.status
    Scaling.objects.filter(request=request, completed_at__isnull=True).update(
        status=status,
        completed_at=now,
        to_engines=count,
        error_message=request.error_message,
        delta=F("delta"),
    )
