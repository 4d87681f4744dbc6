"""Find the workloads that differ between two snapshots."""

from collections.abc import Mapping, Sequence
from itertools import compress, count
from operator import is_not

from scheduler.engine.model import Workload

WorkloadsByName = Mapping[str, Workload]
CHUNK_SIZE = 512  # number of workloads compared at a time while both sequences are equal
MAX_LOOKAHEAD = 4096  # maximum number of workloads searched for the next match


def find_differences(
    before: Sequence[Workload], now: Sequence[Workload]
) -> tuple[WorkloadsByName, WorkloadsByName]:
    """Return the workloads that only `before` contains and those that only `now` contains, keyed by name.

    A workload that has changed is in both mappings.
    """
    only_before: list[Workload] = []
    only_now: list[Workload] = []
    i = j = 0
    while i < len(before) and j < len(now):
        same = _count_equal_workloads(before, i, now, j)
        i, j = i + same, j + same
        removed, added = _distances_to_next_match(before, i, now, j)
        only_before += before[i : i + removed]
        only_now += now[j : j + added]
        i, j = i + removed, j + added
    old = {workload.name: workload for workload in (*only_before, *before[i:])}
    new = {workload.name: workload for workload in (*only_now, *now[j:])}
    unchanged = {name for name, it in new.items() if old.get(name) is it or old.get(name) == it}
    for name in unchanged:
        del old[name], new[name]
    return old, new


def _count_equal_workloads(before: Sequence[Workload], i: int, now: Sequence[Workload], j: int) -> int:
    same = 0
    while True:
        run_before, run_now = before[i + same : i + same + CHUNK_SIZE], now[j + same : j + same + CHUNK_SIZE]
        if run_before != run_now or not run_before:
            return same + next(
                compress(count(), map(is_not, run_before, run_now)), min(len(run_before), len(run_now))
            )
        same += len(run_before)


def _distances_to_next_match(
    before: Sequence[Workload], i: int, now: Sequence[Workload], j: int
) -> tuple[int, int]:
    """Return how many workloads to skip in each sequence to reach the next match within MAX_LOOKAHEAD."""
    left, new = len(before) - i, len(now) - j
    if not left or not new:
        return left, new
    before_workload, run_now = before[i], now[j]
    for ahead in range(1, MAX_LOOKAHEAD):
        in_before, in_now = ahead < left, ahead < new
        if in_before and in_now and before[i + ahead] is now[j + ahead]:
            return ahead, ahead
        if in_before and before[i + ahead] is run_now:
            return ahead, 0
        if in_now and now[j + ahead] is before_workload:
            return 0, ahead
        if not (in_before or in_now):
            break
    return left, new
