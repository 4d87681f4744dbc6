"""Search the logs of all pods of a workload's run."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from projects.models import Pod
from scheduler.api.logs.pod_log import PodLog
from scheduler.reports.log_search import LOG_START, TIME_LIMIT, LinePosition, LogMatches, search_log

MAX_PODS = 64


@dataclass(frozen=True, slots=True)
class AllPodsMatches:
    """Matches in the logs of several pods.

    `pods` is the number of pods in the run. `by_pod` contains the searched logs. `resume_at` maps each pod
    whose log has further matches or text to the position from which to continue.
    """

    pods: int
    by_pod: tuple[tuple[PodLog, LogMatches], ...]
    resume_at: tuple[tuple[Pod, LinePosition], ...]

    @property
    def matches(self) -> int:
        return sum(matches.matches for _, matches in self.by_pod)

    @property
    def searched_count(self) -> int:
        """Number of pods whose logs were searched to the end."""
        return sum(matches.is_complete for _, matches in self.by_pod)


def search_all_pods(
    logs: Sequence[PodLog],
    text: str,
    *,
    starts: Mapping[str, LinePosition],
    pod_count: int,
    max_matches: int,
    context_lines: int,
    ignore_case: bool,
) -> AllPodsMatches:
    """Search the logs one after another within the time limit.

    `pod_count` is the total number of pods. Each log gets an equal part of `max_matches`. To continue an
    earlier search, pass its positions as `starts`.
    """
    until = time.monotonic() + TIME_LIMIT
    by_pod: list[tuple[PodLog, LogMatches]] = []
    resume_at: list[tuple[Pod, LinePosition]] = []
    logs = [log for log in logs if not starts or str(log.pod.pk) in starts]
    for log in logs:
        start = starts.get(str(log.pod.pk), LOG_START)
        left = until - time.monotonic()
        if left <= 0:
            resume_at.append((log.pod, start))
            continue
        shown = sum(len(matches.lines) for _, matches in by_pod)
        share = max(1, (max_matches - shown) // (len(logs) - len(by_pod)))
        matches = search_log(
            log.read_large_chunk, text, start=start, max_matches=share, context_lines=context_lines,
            ignore_case=ignore_case, seconds=left,
        )  # fmt: skip
        by_pod.append((log, matches))
        if matches.resume_at:
            resume_at.append((log.pod, matches.resume_at))
    return AllPodsMatches(pod_count, tuple(by_pod), tuple(resume_at))
