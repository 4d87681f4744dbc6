"""Short texts for pending reasons, with the numbers first."""

from collections.abc import Mapping
from typing import Any

from berth.core.amounts import MILLI
from berth.core.words import format_amount
from projects.models import Workload
from scheduler.engine.plan import Reason

BOUNDS: Mapping[str, str] = {
    Reason.WOULD_EXCEED_FAIR_SHARE: "fair share",
    Reason.PROJECT_LIMIT: "limit",
    Reason.DEPARTMENT_LIMIT: "limit",
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: "quota",
    Reason.DEPARTMENT_OVERSOLD: "quota",
}


def brief_reason(workload: Workload) -> str:
    """Return the first pending reason for one line of a list.

    An example is "vision: 12 allocated + 2 requested, fair share 11". For reasons that do not concern a
    queue's bounds, the text is the workload's message.
    """
    blockers = (workload.explanation or {}).get("blockers") or [{}]
    numbers = blockers[0].get("numbers") or {}
    bound = BOUNDS.get(workload.reason)
    if bound is None or blockers[0].get("reason") != workload.reason or numbers.get("bound") is None:
        return workload.message
    resource = str(numbers["resource"])
    keys = ("allocated", "requested", "bound")
    allocated, requested, most = (_number(resource, numbers[key]) for key in keys)
    kind = " CPUs" if resource == "cpu" else ""
    return f"{numbers['queue']}: {allocated} allocated + {requested}{kind} requested, {bound} {most}"


def _number(resource: str, amount: Any) -> str:
    return format_amount(resource, amount) if resource == "memory_mib" else f"{amount / MILLI:g}"
