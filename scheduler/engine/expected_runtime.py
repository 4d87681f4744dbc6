"""Runtime expected of workloads that declare no `max_runtime`, from the last runs of their project."""

from collections.abc import Sequence

LAST_RUNS = 50  # number of completed runs per project that count
MIN_RUNS = 5  # with fewer runs, no runtime is expected


def expected_runtime(runtimes: Sequence[int]) -> int | None:
    """Return the runtime in seconds that four of five runs did not exceed, or None after too few runs.

    `runtimes` has the seconds of a project's last completed runs, in any order.
    """
    count = len(runtimes)
    return max(1, sorted(runtimes)[(4 * count + 4) // 5 - 1]) if count >= MIN_RUNS else None
