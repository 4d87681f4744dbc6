"""Count evictions by pairs of projects."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db.models import Count, QuerySet, Sum

from scheduler.models import Eviction

MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Pair:
    """Evictions of one project's work for another's; `took` empty: for nobody (a drain, a broken gang)."""

    gave: str
    took: str
    count: int
    gpu_milli: int
    lost_gpu_seconds: int


def pairs(rows: QuerySet[Eviction]) -> list[Pair]:
    """The most work lost first. Both sides of an eviction know each other's project."""
    names = ("project_name", "beneficiary_project_name")
    summed = (
        rows.order_by()
        .values_list(*names)
        .annotate(n=Count("pk"), milli=Sum("gpu_milli"), lost=Sum("lost_gpu_seconds"))
    )
    found = [Pair(gave, took, n, milli, lost) for gave, took, n, milli, lost in summed]
    return sorted(found, key=lambda pair: (-pair.lost_gpu_seconds, -pair.count, pair.gave, pair.took))


@dataclass(frozen=True, slots=True)
class Grid:
    """`rows`: who gave way, and in the order of `took` what came of it; None: it never happened.

    `left_out`: pairs of projects that lost and took less than those shown.
    """

    gave: tuple[str, ...]
    took: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Pair | None, ...]], ...]
    left_out: int = 0


def grid(found: Iterable[Pair]) -> Grid:
    by_key = {(pair.gave, pair.took): pair for pair in found}
    gave = sorted(_most(by_key.values(), lambda pair: pair.gave))
    took = sorted(_most(by_key.values(), lambda pair: pair.took), key=lambda name: (not name, name))
    rows = tuple((one, tuple(by_key.get((one, other)) for other in took)) for one in gave)
    shown = sum(pair is not None for _, cells in rows for pair in cells)
    return Grid(tuple(gave), tuple(took), rows, len(by_key) - shown)


def _most(found: Iterable[Pair], name: Callable[[Pair], str]) -> list[str]:
    """The names with the most lost work, as many as a page can show beside each other."""
    lost: dict[str, int] = {}
    for pair in found:
        lost[name(pair)] = lost.get(name(pair), 0) + pair.lost_gpu_seconds
    return sorted(lost, key=lambda each: (-lost[each], each))[:MOST_SHOWN]
