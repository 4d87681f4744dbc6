"""Expected start of a workload that is held back by its project's limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Value

from projects.actor import Actor
from projects.models import Phase
from projects.models.workloads import LIVE_PHASES
from projects.selectors import workloads
from projects.services.workloads.prediction import Prediction
from scheduler.engine.plan import Reason
from scheduler.reports.explanations.awaited_ends import MAX_AWAITED, AwaitedEnd
from scheduler.web.workloads.details import link_awaited_ends
from scheduler.web.workloads.pending.change_link import link_workloads

ENDS_MAX = 100  # maximum number of ending workloads whose GPUs are added up
RUNTIME_END = ExpressionWrapper(
    F("started_at")
    + ExpressionWrapper(F("max_runtime") * Value(timedelta(seconds=1)), output_field=DurationField()),
    output_field=DateTimeField(),
)


@dataclass(frozen=True, slots=True)
class LimitWait:
    """Time at which the project is expected to have room below its limit.

    `after` links to the workloads that have to end first. It is empty if the unedited workload would start at
    that time.
    """

    at: datetime
    after: Sequence[tuple[str, str]]


def predict_limit_wait(actor: Actor, prediction: Prediction, now: datetime) -> LimitWait | None:
    """Return when the predicted workload can start after other workloads of its project reach their maximum
    runtime. Return None if the workload is pending mainly for a reason other than the project's GPU limit, or
    if the time cannot be predicted.
    """
    pools, project = prediction.workload["pools"], prediction.workload["project"]
    main = next(iter(prediction.blockers), None)
    numbers = (main or {}).get("numbers") or {}
    if main is None or main["reason"] != Reason.PROJECT_LIMIT or numbers.get("resource") != "gpu":
        return None
    if len(pools) != 1 or "behind" in numbers or "group" in numbers:
        return None
    missing = numbers["allocated"] + numbers["requested"] - numbers["bound"]
    allocated = workloads(actor).filter(
        project__name=project, pool__name=pools[0], phase__in=LIVE_PHASES, gpu_milli_now__gt=0
    )
    if allocated.filter(phase=Phase.STOPPING).exists():
        return None
    ending = allocated.filter(started_at__isnull=False, max_runtime__isnull=False).annotate(end=RUNTIME_END)
    rows = ending.order_by("end", "pk").values_list("name", "gpu_milli_now", "end")
    ends = []
    for name, gpu_milli, end in rows[:ENDS_MAX]:
        missing -= gpu_milli
        ends.append(AwaitedEnd(f"{project}/{name}", end))
        if missing <= 0:
            return LimitWait(end, _link_awaited_ends(actor, ends)) if end > now else None
    return None


def _link_awaited_ends(actor: Actor, ends: Sequence[AwaitedEnd]) -> Sequence[tuple[str, str]]:
    if len(ends) > 1:
        return link_awaited_ends(actor, ends[-MAX_AWAITED:])
    return link_workloads(actor, f"when {ends[0].workload} ends", [ends[0].workload])
