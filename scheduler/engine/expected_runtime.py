"""Expected runtime of workloads without `max_runtime`, based on their project's last runs."""

from collections.abc import Sequence

LAST_RUNS = 50  # maximum number of completed runs to consider per project
MIN_RUNS = 5  # with fewer completed runs, no runtime is estimated


def expected_runtime(runtimes: Sequence[int]) -> int | None:
    """Return the runtime in seconds that 80% of the runs did not exceed, or None if there are too
    few runs.
    """
    count = len(runtimes)
    return max(1, sorted(runtimes)[(4 * count + 4) // 5 - 1]) if count >= MIN_RUNS else None
