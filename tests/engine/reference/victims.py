"""Search for the victims that free the most, by trying every order."""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Unit:
    """An extra replica of a workload, or the rest of it once its extra replicas are gone."""

    workload: str
    is_core: bool
    freed: int
    paid: int  # by how much its queue's allocation decreases


@dataclass(frozen=True)
class QueueExcess:
    """How far a queue is over what it may keep, and its victims."""

    excess: int
    units: tuple[Unit, ...]


def most_freed(queue: QueueExcess) -> int:
    """Return the most that can be freed if the queue must be over what it may keep before each eviction."""

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
