"""Eviction totals for each (victim project, preemptor project) pair."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db.models import Count, QuerySet, Sum

from scheduler.models import Eviction

MAX_PROJECTS = 12


@dataclass(frozen=True, slots=True)
class ProjectPair:
    """Totals of the evictions of one project's workloads in favour of another project.

    `preemptor` is empty for evictions without a preemptor, such as drains.
    """

    victim: str
    preemptor: str
    count: int
    gpu_milli: int
    lost_gpu_seconds: int


def totals_by_project_pair(rows: QuerySet[Eviction]) -> list[ProjectPair]:
    """Return the totals by project pair, with the most lost work first.

    Users of either project may see the name of the other.
    """
    sums = (
        rows.order_by()
        .values_list("project_name", "preemptor_project_name")
        .annotate(n=Count("pk"), milli=Sum("gpu_milli"), lost=Sum("lost_gpu_seconds"))
    )
    return sorted(
        (ProjectPair(*row) for row in sums),
        key=lambda pair: (-pair.lost_gpu_seconds, -pair.count, pair.victim, pair.preemptor),
    )


@dataclass(frozen=True, slots=True)
class EvictionMatrix:
    """Matrix of evictions between the projects that lost the most work, one row per victim project.

    A cell is None if there were no evictions. `omitted` is the number of project pairs that do not fit in the
    matrix.
    """

    victims: tuple[str, ...]
    preemptors: tuple[str, ...]
    rows: tuple[tuple[str, tuple[ProjectPair | None, ...]], ...]
    omitted: int = 0


def build_matrix(project_pairs: Iterable[ProjectPair]) -> EvictionMatrix:
    by_key = {(pair.victim, pair.preemptor): pair for pair in project_pairs}
    victims = sorted(_top_by_lost_work(by_key.values(), lambda pair: pair.victim))
    preemptors = sorted(
        _top_by_lost_work(by_key.values(), lambda pair: pair.preemptor), key=lambda name: (not name, name)
    )
    rows = tuple(
        (victim, tuple(by_key.get((victim, preemptor)) for preemptor in preemptors)) for victim in victims
    )
    shown = sum(pair is not None for _, cells in rows for pair in cells)
    return EvictionMatrix(tuple(victims), tuple(preemptors), rows, len(by_key) - shown)


def _top_by_lost_work(project_pairs: Iterable[ProjectPair], name: Callable[[ProjectPair], str]) -> list[str]:
    lost_work: dict[str, int] = {}
    for pair in project_pairs:
        lost_work[name(pair)] = lost_work.get(name(pair), 0) + pair.lost_gpu_seconds
    return sorted(lost_work, key=lambda project: (-lost_work[project], project))[:MAX_PROJECTS]
