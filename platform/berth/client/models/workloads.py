"""Workloads, pods, events and logs."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from berth.client.models.base import Model, Numbers
from berth.client.models.scheduling import Eviction

ENDED = ("completed", "failed", "cancelled")


class Gpus(Model):
    requested: float = 0
    now: float = 0


class PodCount(Model):
    running: int = 0
    wanted: int = 0


class PortLink(Model):
    """One-time link that opens a port in a browser until it expires."""

    url: str
    expires_at: datetime


class Workload(Model):
    id: str
    name: str
    project: str
    phase: str
    department: str = ""
    kind: str = ""
    priority: int = 0
    preemptible: bool = True
    pools: list[str] = []
    pool: str | None = None
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    submitted_at: datetime | None = None
    submitted_by: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    run: int = 0
    preemptions: int = 0
    restarts: int = 0
    exit_code: int | None = None
    gpus: Gpus = Gpus()
    pods: PodCount = PodCount()
    labels: dict[str, str] = {}
    queue_position: int | None = None
    expected_start: datetime | None = None
    expected_start_reason: str = ""
    spec: dict[str, Any] = {}
    warnings: list[str] = []  # only in the response to a submission

    @property
    def handle(self) -> str:
        return f"{self.project}/{self.name}"

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED


class Pod(Model):
    id: str
    role: str = ""
    index: int = 0
    run: int = 0
    rank: int = 0
    node: str | None = None
    state: str = ""
    since: datetime | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    devices: list[int] = []

    @property
    def short_name(self) -> str:
        return f"{self.role}-{self.index}"


class Event(Model):
    at: datetime
    kind: str
    subject: str = ""
    message: str = ""
    actor: str = ""
    data: Numbers = {}


class Blocker(Model):
    reason: str
    message: str = ""
    numbers: Numbers = {}


class PendingPeriod(Model):
    """Period for which one pending reason applied; `until` is None for the current one."""

    reason: str
    since: datetime
    until: datetime | None = None


class Explanation(Model):
    phase: str
    reason: str = ""
    message: str = ""
    queue_position: int | None = None
    ordering: list[str] = []
    expected_start: datetime | None = None
    expected_start_reason: str = ""
    blockers: list[Blocker] = []
    queue: Any = None
    evictions: list[Eviction] = []
    explained_at: datetime | None = None
    cycle: Any = None
    pending_history: list[PendingPeriod] = []


class Problem(Model):
    """Error in a document."""

    path: str = ""
    message: str = ""
    received: str = ""
    allowed: str = ""


class DryRun(Model):
    outcome: str
    workload: Numbers | None = None
    decisions: list[Numbers] = []
    evictions: list[Numbers] = []
    blockers: list[Blocker] = []
    queue_position: int | None = None
    expected_start: datetime | None = None
    expected_start_reason: str = ""
    warnings: list[str] = []
    errors: list[Problem] = []


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Part of a pod's log; `complete` means that nothing will follow `next_offset`."""

    data: bytes
    next_offset: int
    complete: bool


class LogMatch(Model):
    """Matching line; `line` counts from 1, `offset` is the position of its first byte."""

    line: int
    offset: int
    text: str
    before: list[str] = []
    after: list[str] = []


class LogMatches(Model):
    """Page of matches; `matches` counts those in the first `searched_bytes` of `size` bytes."""

    pod: str
    run: int
    matches: int
    size: int
    searched_bytes: int
    items: list[LogMatch]
    next: str | None = None
