"""State that a scheduler process keeps between ticks."""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from berth.db.lease import HeldLease
from pools.models import NodePool
from pools.runtimes.base import Runtime
from scheduler.loop.decide import LayoutCache
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import ObservationCache

Runtimes = Callable[[NodePool], Runtime]


@dataclass(slots=True)
class SentOrders:
    """Times at which this process sent start and stop orders, so that ticks do not repeat them."""

    started: dict[uuid.UUID, datetime] = field(default_factory=dict)
    stopped: dict[uuid.UUID, datetime] = field(default_factory=dict)

    def forget_starts(self, pods: Iterable[uuid.UUID]) -> None:
        for pk in pods:
            self.started.pop(pk, None)


def always_leads() -> bool:
    return True


@dataclass(slots=True)
class SchedulerContext:
    """State of the leading scheduler, shared by all steps of a tick.

    `held_lease` fences every write. `leads` is checked before every call to a machine, because such calls
    cannot be fenced. The caches only save work and never affect a decision; a new leader starts with
    empty caches.
    """

    held_lease: HeldLease
    runtimes: Runtimes
    leads: Callable[[], bool] = always_leads
    specs: SpecCache = field(default_factory=SpecCache)
    cache: ObservationCache = field(default_factory=ObservationCache)
    layout: LayoutCache = field(default_factory=LayoutCache)
    sent: SentOrders = field(default_factory=SentOrders)
