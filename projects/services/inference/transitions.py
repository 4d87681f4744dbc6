"""Change the state of scale requests and inference engines by compare-and-set.

Each status change of a request is also added to its history.
"""

from datetime import datetime
from typing import Any

from django.db.models import F

from berth.db.writes.moves import compare_and_set
from projects.engine import scaling
from projects.models import InferenceEngine, ScaleRequest, ScaleStep, Scaling
from projects.services import announce, events


def store_request(request: ScaleRequest, *, message: str = "") -> None:
    """Store a scale request and the first row of its history, in the caller's transaction."""
    request.save(force_insert=True)
    ScaleStep.objects.create(
        request=request, at=request.created_at, status=request.status, message=message or request.reason
    )
    announce.workload_changed(request.service.workload)


def transition_request(
    request: ScaleRequest, to: str, *, now: datetime, message: str = "", **columns: Any
) -> bool:
    """Set a scale request's status to `to`.

    Return False if the stored status differs from `request.status`.
    """
    allowed = scaling.allowed_request_transitions(request.direction)
    assert to in allowed[request.status], f"transition from {request.status} to {to} is not allowed"
    if to in scaling.FINAL:
        columns["ended_at"] = now
    if not compare_and_set(request, "status", expected=[request.status], to=to, updated_at=now, **columns):
        return False
    ScaleStep.objects.create(request=request, at=now, status=to, message=message)
    if to in scaling.FINAL:
        _complete_scaling(request, now)
    announce.workload_changed(request.service.workload)
    return True


def transition_engine(engine: InferenceEngine, to: str, *, now: datetime, **columns: Any) -> bool:
    """Set the inference engine's state to `to`. Return False if the state has changed since the engine was
    read.
    """
    assert to in scaling.ENGINE_TRANSITIONS[engine.state], (
        f"transition from {engine.state} to {to} is not allowed"
    )
    if to in scaling.ENDED:
        columns["ended_at"] = now
    if not compare_and_set(engine, "state", expected=[engine.state], to=to, since=now, **columns):
        return False
    if to == "FAILED":
        _record_failure(engine)
    announce.workload_changed(engine.service.workload)
    return True


def _record_failure(engine: InferenceEngine) -> None:
    """Record an engine's failure as an event, because lists of live engines omit failed engines."""
    data = {"engine": engine.name, "url": engine.url, "failure": engine.failure}
    reason = engine.message or "No reason was reported."
    message = f"{engine.name} failed: {reason}"
    events.record("engine_failed", engine.service.workload, message, actor="services", data=data)


def record_observations(engine: InferenceEngine, **columns: Any) -> None:
    """Store observations about the inference engine without changing its state."""
    changed_columns = {name: value for name, value in columns.items() if getattr(engine, name) != value}
    if not changed_columns:
        return
    InferenceEngine.objects.filter(pk=engine.pk).update(**changed_columns)
    for name, value in changed_columns.items():
        setattr(engine, name, value)


def _complete_scaling(request: ScaleRequest, now: datetime) -> None:
    """Add the outcome and the actual number of inference engines to the autoscaler's record of the
    request.
    """
    live = InferenceEngine.objects.filter(service=request.service, ended_at__isnull=True)
    count = live.exclude(state__in=scaling.LEAVING).count()
    status = "ACTIVE" if request.status == "PARTIAL" else request.status
    Scaling.objects.filter(request=request, completed_at__isnull=True).update(
        status=status,
        completed_at=now,
        to_engines=count,
        error_message=request.error_message,
        delta=F("delta"),
    )
