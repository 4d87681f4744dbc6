"""Resource amounts as integers, so that sums and comparisons are exact."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

MILLI = 1000
RESOURCES = ("gpu", "cpu", "memory_mib")


class Amounts(NamedTuple):
    """Resource amounts: milli-GPU, milli-CPU and MiB of memory."""

    gpu: int = 0
    cpu: int = 0
    memory_mib: int = 0

    def plus(self, other: "Amounts") -> "Amounts":
        return Amounts(self.gpu + other.gpu, self.cpu + other.cpu, self.memory_mib + other.memory_mib)

    def minus(self, other: "Amounts") -> "Amounts":
        return Amounts(self.gpu - other.gpu, self.cpu - other.cpu, self.memory_mib - other.memory_mib)

    def times(self, count: int) -> "Amounts":
        return Amounts(self.gpu * count, self.cpu * count, self.memory_mib * count)


class Bounds(NamedTuple):
    """Upper bounds per resource. None means unlimited."""

    gpu: int | None = None
    cpu: int | None = None
    memory_mib: int | None = None

    def exceeded_resources(self, amounts: Amounts) -> Iterator[str]:
        """Yield the name of each resource whose amount in `amounts` exceeds its bound."""
        for name, bound, amount in zip(RESOURCES, self, amounts, strict=True):
            if bound is not None and amount > bound:
                yield name


def sum_bounds(bounds: Iterable[int | None]) -> int | None:
    """Return the sum of a resource's bounds, or None if any of the bounds is unlimited."""
    total = 0
    for bound in bounds:
        if bound is None:
            return None
        total += bound
    return total


NO_RESOURCES = Amounts()
UNLIMITED = Bounds()
