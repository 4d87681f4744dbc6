"""Find the workloads that differ between two snapshots."""

from collections.abc import Mapping, Sequence
from itertools import compress, count
from operator import is_not

from scheduler.engine.model import Workload

ByName = Mapping[str, Workload]
RUN = 512  # workloads compared at a time while nothing differs
LOOK = 4096  # how far to look ahead for the next equal workload


def different(before: Sequence[Workload], now: Sequence[Workload]) -> tuple[ByName, ByName]:
    """Return the workloads of each sequence that are missing or different in the other one."""
    only_before: list[Workload] = []
    only_now: list[Workload] = []
    i = j = 0
    while i < len(before) and j < len(now):
        same = _alike(before, i, now, j)
        i, j = i + same, j + same
        left, new = _apart(before, i, now, j)
        only_before += before[i : i + left]
        only_now += now[j : j + new]
        i, j = i + left, j + new
    was = {workload.name: workload for workload in (*only_before, *before[i:])}
    are = {workload.name: workload for workload in (*only_now, *now[j:])}
    same_value = {name for name, it in are.items() if was.get(name) is it or was.get(name) == it}
    for name in same_value:
        del was[name], are[name]
    return was, are


def _alike(before: Sequence[Workload], i: int, now: Sequence[Workload], j: int) -> int:
    """Return the number of equal workloads from here on. Nearly all comparisons are by identity."""
    same = 0
    while True:
        run_before, run_now = before[i + same : i + same + RUN], now[j + same : j + same + RUN]
        if run_before != run_now or not run_before:
            return same + next(
                compress(count(), map(is_not, run_before, run_now)), min(len(run_before), len(run_now))
            )
        same += len(run_before)


def _apart(before: Sequence[Workload], i: int, now: Sequence[Workload], j: int) -> tuple[int, int]:
    """Return the number of workloads to skip in each until both match again; all if that is too far."""
    left, new = len(before) - i, len(now) - j
    if not left or not new:
        return left, new
    before_workload, run_now = before[i], now[j]
    for ahead in range(1, LOOK):
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
