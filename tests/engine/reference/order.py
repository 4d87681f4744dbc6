"""A simple reference for the queue order on one large node.

It uses no engine code, only the fair shares that the engine reports.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class QueueState:
    """A queue's quota, share and limit in GPUs, and the values that break ties."""

    name: str
    quota: int
    share: int
    rank: int
    created: int
    limit: float = float("inf")


@dataclass(frozen=True)
class Pending:
    name: str
    path: tuple[str, ...]  # (department, project)
    gpus: int
    priority: int
    submitted: int
    preemptible: bool = True

    @property
    def in_project(self) -> tuple[int, int, str, int]:
        number = re.search(r"-([0-9]+)$", self.name)
        name = self.name[: number.start()] if number else self.name
        return -self.priority, self.submitted, name, int(number[1]) if number else -1


@dataclass
class OneNodeScheduler:
    """Pending workloads, free GPUs, and the GPUs that each queue has allocated."""

    free: int
    queues: Mapping[str, QueueState]
    pending: list[Pending]
    held: dict[str, int]
    firm: dict[str, int] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)

    def allocate(self) -> None:
        while self.pending:
            head = self._head(self.pending, 0)
            self.pending.remove(head)
            self.order.append(head.name)
            if head.gpus <= self.free and all(self._may_hold(head, name) for name in head.path):
                self.started.append(head.name)
                self.free -= head.gpus
                for name in head.path:
                    self.held[name] = self.held.get(name, 0) + head.gpus
                    if not head.preemptible:
                        self.firm[name] = self.firm.get(name, 0) + head.gpus

    def _head(self, pending: Sequence[Pending], level: int) -> Pending:
        if level == 2:
            return min(pending, key=lambda w: w.in_project)
        names = {w.path[level] for w in pending}
        heads = {name: self._head([w for w in pending if w.path[level] == name], level + 1) for name in names}
        return heads[min(names, key=lambda name: self._key(self.queues[name], heads[name]))]

    def _key(self, queue: QueueState, head: Pending) -> tuple[object, ...]:
        held, deserved = self.held.get(queue.name, 0), max(queue.quota, queue.share)
        return (
            held + head.gpus > queue.quota,
            -queue.rank,
            held + head.gpus > queue.share,
            _saturation(held + head.gpus, deserved),
            _saturation(held, deserved),
            head.submitted,
            queue.created,
            queue.name,
        )

    def _may_hold(self, head: Pending, name: str) -> bool:
        queue = self.queues[name]
        if self.held.get(name, 0) + head.gpus > queue.limit:
            return False
        return head.preemptible or self.firm.get(name, 0) + head.gpus <= queue.quota


def _saturation(held: int, deserved: int) -> Fraction | float:
    if deserved == 0:
        return float("inf") if held else Fraction(0)
    return Fraction(held, deserved)
