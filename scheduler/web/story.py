"""Here we gather what a workload's page tells: its pods, why it waits, who gave way, what happened."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml
from django.utils.dateparse import parse_datetime

from berth.core.amounts import MILLI
from berth.web.numbers import duration, memory, spoken, thousandths
from projects.acting import Acting
from projects.models import Event, Pod, Workload
from projects.selectors import events, pods
from scheduler.models import Allocation, Eviction
from scheduler.selectors import evictions

MOST_EVENTS, MOST_EVICTIONS, MOST_PODS = 100, 20, 500
TONES = {
    "running": "good",
    "completed": "good",
    "failed": "bad",
    "stopping": "warn",
    "evicted": "warn",
    "preempted": "warn",
    "lost": "bad",
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    reason: str
    message: str
    numbers: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why it waits, as the last cycle that looked at it said."""

    obstacles: list[Obstacle]
    position: int | None
    pool: str
    key: list[str]
    expected_start: datetime | None
    told_at: datetime | None


@dataclass(frozen=True, slots=True)
class Placed:
    pod: Pod
    held: Allocation | None

    @property
    def gpus(self) -> int:
        return self.held.gpu_milli_total if self.held else 0


def waiting(workload: Workload) -> Waiting | None:
    if workload.phase not in ("pending", "reserved"):
        return None
    said = workload.explanation if isinstance(workload.explanation, dict) else {}
    starts = said.get("expected_start")
    return Waiting(
        obstacles=[
            Obstacle(
                str(each.get("reason", "")), str(each.get("message", "")), numbers(each.get("numbers") or {})
            )
            for each in said.get("blockers") or []
        ],
        position=said.get("position"),
        pool=str(said.get("pool") or ""),
        key=[str(each) for each in said.get("key") or []],
        expected_start=parse_datetime(starts) if isinstance(starts, str) else None,
        told_at=workload.explained_at,
    )


def numbers(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A blocker's numbers, each in the unit that its name says."""
    return [
        (spoken(name.removesuffix("_milli").removesuffix("_mib")), _number(name, value))
        for name, value in given.items()
    ]


def placed(acting: Acting, workload: Workload) -> tuple[list[Placed], list[Placed]]:
    """Pods of the present run, and of earlier ones, newest first."""
    found = list(
        pods(acting)
        .filter(workload=workload)
        .select_related("allocation", "node")
        .order_by("-run", "rank", "role", "index")[:MOST_PODS]
    )
    all_of_them = [Placed(pod, getattr(pod, "allocation", None)) for pod in found]
    return (
        [each for each in all_of_them if each.pod.run == workload.run],
        [each for each in all_of_them if each.pod.run != workload.run],
    )


def happened(acting: Acting, workload: Workload) -> list[tuple[Event, str]]:
    rows = events(acting).filter(workload_id=workload.pk)[:MOST_EVENTS]
    return [(row, TONES.get(row.kind, "")) for row in rows]


def gave_way(acting: Acting, workload: Workload) -> list[Eviction]:
    return list(evictions(acting).filter(workload_id=workload.pk).order_by("-pk")[:MOST_EVICTIONS])


def took(acting: Acting, workload: Workload) -> list[Eviction]:
    return list(evictions(acting).filter(beneficiary_id=workload.pk).order_by("-pk")[:MOST_EVICTIONS])


def written(workload: Workload) -> str:
    """The document as YAML, in the order in which people write it."""
    return yaml.safe_dump(workload.spec, sort_keys=False, allow_unicode=True, width=100)


def _number(name: str, value: object) -> str:
    if value is None:
        return "unlimited"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if "memory" in name or name.endswith("mib"):
        return memory(int(value))
    if "seconds" in name or name.endswith(("runtime", "delay", "_for")):
        return duration(value)
    if "milli" in name:
        return thousandths(value)
    return f"{value:,}" if isinstance(value, int) else f"{value / MILLI * MILLI:,.3f}".rstrip("0").rstrip(".")
