"""Data for a workload's page: pods, reasons, evictions and documents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from berth.core.amounts import MILLI
from berth.core.words import UNSAID, counted
from berth.documents.ordered import as_text
from berth.server.web.numbers import duration, memory, spoken
from projects.acting import Acting
from projects.models import Pod, Workload
from projects.selectors import pods
from scheduler.models import Allocation
from scheduler.reports.evictions.rendering import RenderedEviction, to_open
from scheduler.reports.explanations.workload import WAITING, Explanation, explain
from scheduler.reports.selectors import evictions
from scheduler.reports.visibility import own_departments, reader

MOST_EVICTIONS, MOST_PODS = 20, 500
COUNTED = (
    "requested",
    "allocated",
    "bound",
    "quota",
    "share",
    "free",
    "biggest_block",
    "missing",
    "most",
    "reclaimable",
    "protected",
)
NAMES = {
    "queue": "queue",
    "requested": "requested",
    "allocated": "allocated",
    "bound": "limit",
    "quota": "quota",
    "share": "fair share",
    "free": "free",
    "biggest_block": "largest free block",
    "missing": "missing",
    "most": "maximum",
    "reclaimable": "reclaimable",
    "protected": "protected",
    "seconds": "remaining",
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    reason: str
    message: str
    numbers: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pending reasons from the last cycle that evaluated a workload, and the state of its queues."""

    obstacles: list[Obstacle]
    explanation: Explanation
    pool: str
    queues: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Placed:
    pod: Pod
    held: Allocation | None

    @property
    def gpus(self) -> int:
        return self.held.gpu_milli_total if self.held else 0


def waiting(acting: Acting, workload: Workload) -> Waiting | None:
    if workload.phase not in WAITING:
        return None
    explanation = explain(acting, workload)
    return Waiting(
        obstacles=obstacles(explanation.blockers),
        explanation=explanation,
        pool=str((workload.explanation or {}).get("pool") or ""),
        queues=_with_trace_urls(acting, workload, explanation.queue),
    )


def _with_trace_urls(acting: Acting, workload: Workload, queues: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return project and department, each with its fair-share trace URL if the reader may open the trace."""
    whole = own_departments(acting)
    may_read = {"project": True, "department": whole is None or workload.project.department_id in whole}
    result = []
    for kind, readable in may_read.items():
        place = [f"{kind}s", queues[kind]["name"], queues[kind]["pool"]]
        result.append(
            {**queues[kind], "trace_url": reverse("fair-share-trace", args=place) if readable else ""}
        )
    return result


def obstacles(blockers: Iterable[Mapping[str, Any]]) -> list[Obstacle]:
    return [
        Obstacle(str(each["reason"]), str(each["message"]), numbers(each.get("numbers") or {}))
        for each in blockers
    ]


def numbers(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a blocker's numbers with units, in reading order."""
    resource = str(values.get("resource", "gpu"))
    order = list(NAMES)
    keys = sorted(values, key=lambda key: (order.index(key) if key in NAMES else len(order), key))
    return [
        (NAMES.get(key, spoken(key)), _format_number(key, values[key], resource))
        for key in keys
        if key not in UNSAID
    ]


def placed(acting: Acting, workload: Workload) -> tuple[list[Placed], list[Placed]]:
    """Return the pods of the current run, and those of earlier runs, newest first."""
    result = list(
        pods(acting)
        .filter(workload=workload)
        .select_related("allocation", "node")
        .order_by("-run", "rank", "role", "index")[:MOST_PODS]
    )
    attempts = [Placed(pod, getattr(pod, "allocation", None)) for pod in result]
    return (
        [each for each in attempts if each.pod.run == workload.run],
        [each for each in attempts if each.pod.run != workload.run],
    )


def as_victim(acting: Acting, workload: Workload) -> list[RenderedEviction]:
    return to_open(
        reader(acting), evictions(acting).filter(workload_id=workload.pk).order_by("-pk")[:MOST_EVICTIONS]
    )


def as_preemptor(acting: Acting, workload: Workload) -> list[RenderedEviction]:
    return to_open(
        reader(acting), evictions(acting).filter(preemptor_id=workload.pk).order_by("-pk")[:MOST_EVICTIONS]
    )


def written(workload: Workload, **instead: Any) -> str:
    """Return the workload's document as YAML in the customary key order, with `instead` replacing values."""
    return as_text({**workload.spec, **instead})


def _format_number(key: str, value: object, resource: str) -> str:
    if value is None:
        return "unlimited" if key in COUNTED else "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if key in COUNTED:
        return _format_amount(value, resource)
    if key == "seconds":
        return duration(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def _format_amount(value: float, resource: str) -> str:
    if resource in ("memory_mib", "gpu_memory_mib"):
        return memory(int(value))
    if resource == "pods":
        return counted(value, "pod")
    return counted(value / MILLI, "core" if resource == "cpu" else "GPU")
