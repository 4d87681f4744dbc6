"""State of a scheduler process that persists between ticks."""

import uuid
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from berth.db.loops.lease import HeldLease
from pools.models import NodePool
from pools.runtimes.base import Runtime
from scheduler.loop.decide import LayoutCache
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import ObservationCache
from scheduler.loop.tick_size import TickSize
from scheduler.registries import DigestResolver, HttpResolver

Runtimes = Callable[[NodePool], Runtime]


@dataclass(slots=True)
class SentCommands:
    """Times of the last start and stop commands for each pod, so that ticks do not repeat commands."""

    started: dict[uuid.UUID, datetime] = field(default_factory=dict)
    stopped: dict[uuid.UUID, datetime] = field(default_factory=dict)
    failed: dict[uuid.UUID, datetime] = field(default_factory=dict)  # last failed start of each pod
    rejected: dict[uuid.UUID, datetime] = field(default_factory=dict)  # last rejected start of each pod
    # First rejection of each workload, and number of releases after repeated rejections.
    rejected_since: dict[uuid.UUID, datetime] = field(default_factory=dict)
    releases: dict[uuid.UUID, int] = field(default_factory=dict)
    starts_left: bool = False  # True if the last tick postponed some starts to the next tick

    def retain_starts(self, pods: Container[uuid.UUID]) -> None:
        """Forget the starts of all pods except `pods`, which are still starting."""
        self.started = {pk: at for pk, at in self.started.items() if pk in pods}

    def forget_starts(self, pods: Iterable[uuid.UUID]) -> None:
        for pk in pods:
            self.started.pop(pk, None)


@dataclass(slots=True)
class StartMessages:
    """Last message about each starting workload, and the last progress of its pods."""

    failures: dict[uuid.UUID, str] = field(default_factory=dict)
    shown: dict[uuid.UUID, tuple[str, datetime]] = field(default_factory=dict)
    progress: dict[uuid.UUID, tuple[tuple[str, ...], datetime]] = field(default_factory=dict)
    pulling: frozenset[uuid.UUID] = frozenset()

    def retain_workloads(self, workloads: Container[uuid.UUID]) -> None:
        """Remove the entries of all workloads except `workloads`, which are still starting."""
        self.shown = {pk: value for pk, value in self.shown.items() if pk in workloads}
        self.progress = {pk: value for pk, value in self.progress.items() if pk in workloads}

    def record_progress(self, workload: uuid.UUID, progress: tuple[str, ...], now: datetime) -> None:
        if any(progress) and self.progress.get(workload, ((), now))[0] != progress:
            self.progress[workload] = (progress, now)

    def has_progressed_since(self, workload: uuid.UUID, since: datetime) -> bool:
        return workload in self.progress and self.progress[workload][1] >= since


def always_leads() -> bool:
    return True


@dataclass(slots=True)
class SchedulerContext:
    """The leading scheduler's state, shared by all steps of a tick.

    `held_lease` fences every write. Caches never affect a decision.
    """

    held_lease: HeldLease
    runtimes: Runtimes
    leads: Callable[[], bool] = always_leads
    specs: SpecCache = field(default_factory=SpecCache)
    cache: ObservationCache = field(default_factory=ObservationCache)
    layout: LayoutCache = field(default_factory=LayoutCache)
    sent: SentCommands = field(default_factory=SentCommands)
    size: TickSize = field(default_factory=TickSize)
    images: DigestResolver = field(default_factory=HttpResolver)
    start_messages: StartMessages = field(default_factory=StartMessages)
    # Whether reservation rows may exist in this tick. Only this tick's commit inserts them.
    has_reservations: bool = True
    # Pods whose rows are still in the starting state, but that were reported as running in this tick.
    reported_running: frozenset[uuid.UUID] = frozenset()
