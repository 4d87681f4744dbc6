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

    `matches` is the number of matching lines in the first `searched` of `pods` pods. `by_pod` contains the
    first of these lines by pod.
    """

    matches: int
    pods: int
    searched: int
    by_pod: tuple[tuple[Pod, LogMatches], ...]

    @property
    def shown(self) -> int:
        return sum(len(matches.lines) for _, matches in self.by_pod)

    @property
    def is_complete(self) -> bool:
        return self.searched == self.pods and all(matches.is_complete for _, matches in self.by_pod)


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
    return AllPodsMatches(
        sum(matches.matches for _, matches in by_pod), pod_count, len(by_pod), tuple(by_pod)
    )
