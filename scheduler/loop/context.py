"""What a scheduler process keeps from one tick to the next."""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from berth.db.lease import Held
from pools.models import NodePool
from pools.runtimes.base import Runtime
from scheduler.loop.decide import LayoutCache
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import ObservationCache

Runtimes = Callable[[NodePool], Runtime]


@dataclass(slots=True)
class SentOrders:
    """What this process told the runtimes and when, so that not every tick says it again."""

    started: dict[uuid.UUID, datetime] = field(default_factory=dict)
    stopped: dict[uuid.UUID, datetime] = field(default_factory=dict)

    def forget_starts(self, pods: Iterable[uuid.UUID]) -> None:
        for pk in pods:
            self.started.pop(pk, None)


def always() -> bool:
    return True


@dataclass(slots=True)
class SchedulerContext:
    """`held` fences every write; `leads` is asked before every call to a machine, which no fence guards.

    What is remembered here spares work and decides nothing: who takes over the lead begins without.
    """

    held: Held
    runtimes: Runtimes
    leads: Callable[[], bool] = always
    specs: SpecCache = field(default_factory=SpecCache)
    cache: ObservationCache = field(default_factory=ObservationCache)
    layout: LayoutCache = field(default_factory=LayoutCache)
    sent: SentOrders = field(default_factory=SentOrders)
