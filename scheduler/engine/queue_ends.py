"""Declared ends of workloads by queue, to estimate when queues fall below their limits."""

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from berth.core.amounts import RESOURCES
from scheduler.engine.model import Queue, Workload
from scheduler.engine.plan import Numbers

Amounts = tuple[int, int, int]


@dataclass(frozen=True, slots=True, order=True)
class QueueEnd:
    """Declared end of a workload, in seconds since the epoch, and the amounts that it frees."""

    at: int
    workload: str
    project: str
    amounts: Amounts


class QueueEnds:
    """Declared ends in one pool, and the requests of workloads with an estimated start."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._parents = {queue.name: queue.parent for queue in queues}
        self._ends: list[tuple[int, Workload, Amounts]] = []  # not sorted into `_by_queue` yet
        self._by_queue: dict[str, list[QueueEnd]] = {}
        self._starting: dict[str, Amounts] = {}

    def add_end(self, at: int, workload: Workload, amounts: Amounts) -> None:
        self._ends.append((at, workload, amounts))

    def add_start(self, workload: Workload, requested: Amounts) -> None:
        for queue in self._path(workload.project):
            gpu, cpu, memory = self._starting.get(queue, (0, 0, 0))
            self._starting[queue] = gpu + requested[0], cpu + requested[1], memory + requested[2]

    def find_end(self, exceeded: Numbers) -> QueueEnd | None:
        """Return the end that brings the queue below a limit, or None if the known ends do not suffice.

        `exceeded` holds the numbers of the limit. All workloads with an estimated start count as started.
        """
        for at, workload, amounts in self._ends:  # most pools have no exceeded limit, so this is done last
            for queue in self._path(workload.project):
                end = QueueEnd(at, workload.name, workload.project, amounts)
                insort(self._by_queue.setdefault(queue, []), end)
        self._ends.clear()
        queue, kind = str(exceeded["queue"]), RESOURCES.index(str(exceeded["resource"]))
        over = int(exceeded["missing"] or 0) + self._starting.get(queue, (0, 0, 0))[kind]
        for end in self._by_queue.get(queue, ()):
            over -= end.amounts[kind]
            if over <= 0:
                return end
        return None

    def _path(self, project: str) -> Iterator[str]:
        """Yield the names of a project and its department."""
        queue: str | None = project
        while queue is not None:
            yield queue
            queue = self._parents.get(queue)
