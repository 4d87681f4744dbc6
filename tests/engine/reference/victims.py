"""Find the largest amount that victims can free, by trying every order."""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Unit:
    """One extra replica of a workload, or the rest of the workload once its extra replicas are gone."""

    workload: str
    is_core: bool
    freed: int
    paid: int  # amount by which the eviction reduces the allocation of its queue


@dataclass(frozen=True)
class QueueExcess:
    """The amount by which a queue exceeds its threshold, and the victims in the queue."""

    excess: int
    units: tuple[Unit, ...]


def max_freed_amount(queue: QueueExcess) -> int:
    """Return the largest amount that evictions can free while the queue is over its threshold."""

    @cache
    def best(left: tuple[Unit, ...], paid: int) -> int:
        result = 0
        for number, unit in enumerate(left):
            needs_extras = unit.is_core and any(
                other.workload == unit.workload and not other.is_core and other.paid > 0 for other in left
            )
            if unit.paid > 0 and paid < queue.excess and not needs_extras:
                rest = (*left[:number], *left[number + 1 :])
                result = max(result, unit.freed + best(rest, paid + unit.paid))
        return result

    return best(tuple(sorted(queue.units, key=repr)), 0)
