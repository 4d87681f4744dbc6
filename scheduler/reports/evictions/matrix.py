"""Evictions counted by pairs of projects."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db.models import Count, QuerySet, Sum

from scheduler.models import Eviction

MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Pair:
    """Evictions in project `victim` for workloads in project `preemptor`.

    `preemptor` is empty for evictions without a preemptor, such as drains and stale gangs.
    """

    victim: str
    preemptor: str
    count: int
    gpu_milli: int
    lost_gpu_seconds: int


def pairs(rows: QuerySet[Eviction]) -> list[Pair]:
    """Return project pairs by descending lost work. Both projects see each other's name."""
    sums = (
        rows.order_by()
        .values_list("project_name", "preemptor_project_name")
        .annotate(n=Count("pk"), milli=Sum("gpu_milli"), lost=Sum("lost_gpu_seconds"))
    )
    return sorted(
        (Pair(*row) for row in sums),
        key=lambda pair: (-pair.lost_gpu_seconds, -pair.count, pair.victim, pair.preemptor),
    )


@dataclass(frozen=True, slots=True)
class Grid:
    """Matrix of the projects with the most lost work.

    Each row names a victim project and has one cell per preemptor project, None without evictions. `omitted`
    counts the pairs left out because other projects lost more work.
    """

    victims: tuple[str, ...]
    preemptors: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Pair | None, ...]], ...]
    omitted: int = 0


def grid(all_pairs: Iterable[Pair]) -> Grid:
    by_key = {(pair.victim, pair.preemptor): pair for pair in all_pairs}
    victims = sorted(_top_by_lost_work(by_key.values(), lambda pair: pair.victim))
    preemptors = sorted(
        _top_by_lost_work(by_key.values(), lambda pair: pair.preemptor), key=lambda name: (not name, name)
    )
    rows = tuple(
        (victim, tuple(by_key.get((victim, preemptor)) for preemptor in preemptors)) for victim in victims
    )
    shown = sum(pair is not None for _, cells in rows for pair in cells)
    return Grid(tuple(victims), tuple(preemptors), rows, len(by_key) - shown)


def _top_by_lost_work(all_pairs: Iterable[Pair], name: Callable[[Pair], str]) -> list[str]:
    """Return the names with the most lost work, at most MOST_SHOWN."""
    lost_work: dict[str, int] = {}
    for pair in all_pairs:
        lost_work[name(pair)] = lost_work.get(name(pair), 0) + pair.lost_gpu_seconds
    return sorted(lost_work, key=lambda each: (-lost_work[each], each))[:MOST_SHOWN]
