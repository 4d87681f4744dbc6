"""Search the logs of all pods of a workload's run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from projects.models import Pod
from scheduler.api.logs.pod_log import PodLog
from scheduler.reports.log_search import TIME_LIMIT, LogMatches, search_log

MAX_PODS = 64


@dataclass(frozen=True, slots=True)
class AllPodsMatches:
    """Matches in the logs of several pods.

    `pods` is the number of pods in the run. `by_pod` contains the matches of the pods whose logs were
    searched, the last of them perhaps in part.
    """

    pods: int
    by_pod: tuple[tuple[Pod, LogMatches], ...]

    @property
    def matches(self) -> int:
        return sum(matches.matches for _, matches in self.by_pod)

    @property
    def shown(self) -> int:
        return sum(len(matches.lines) for _, matches in self.by_pod)

    @property
    def searched(self) -> int:
        """Number of pods whose logs were searched to the end."""
        return sum(matches.is_complete for _, matches in self.by_pod)

    @property
    def is_complete(self) -> bool:
        return self.searched == self.pods


def search_all_pods(
    logs: Sequence[PodLog],
    text: str,
    *,
    pod_count: int,
    max_matches: int,
    context_lines: int,
    ignore_case: bool,
) -> AllPodsMatches:
    """Search the logs of the first of `pod_count` pods one after another until the time limit of a search.

    Each log gets an equal part of `max_matches`, and at least one match.
    """
    until = time.monotonic() + TIME_LIMIT
    by_pod: list[tuple[Pod, LogMatches]] = []
    for log in logs:
        left = until - time.monotonic()
        if left <= 0:
            break
        shown = sum(len(matches.lines) for _, matches in by_pod)
        share = max(1, (max_matches - shown) // (len(logs) - len(by_pod)))
        matches = search_log(
            log.read_large_chunk, text, max_matches=share, context_lines=context_lines,
            ignore_case=ignore_case, seconds=left,
        )  # fmt: skip
        by_pod.append((log.pod, matches))
    return AllPodsMatches(pod_count, tuple(by_pod))
