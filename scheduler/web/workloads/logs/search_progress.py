"""Progress of a log search that takes several requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from scheduler.reports.log_search import LogMatches
from scheduler.web.workloads.logs.all_pods_search import AllPodsMatches


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Result of all requests of a search so far.

    `matches` is the number of matching lines in the searched text, and the page lists `listed` of them.
    `pods` is the number of pods whose logs were searched to the end.
    """

    matches: int = 0
    listed: int = 0
    pods: int = 0
    is_complete: bool = False

    @property
    def query(self) -> str:
        """Query parameters of the request that continues the search."""
        parameters = {"matches": self.matches, "listed": self.listed, "pods": self.pods}
        return urlencode(parameters | ({"complete": "on"} if self.is_complete else {}))

    def add_log(self, result: LogMatches) -> "SearchProgress":
        """Return the progress after a request that searched one log."""
        is_complete = self.is_complete or result.is_complete
        return self._add(result.matches, len(result.lines), int(is_complete), is_complete=is_complete)

    def add_pods(self, result: AllPodsMatches, *, left_out: int) -> "SearchProgress":
        """Return the progress after several pods have been searched.

        `left_out` is the number of pods that were skipped because all of their matches are already listed.
        """
        pods = max(self.pods, left_out + result.searched_count)
        listed = sum(len(matches.lines) for _, matches in result.by_pod)
        return self._add(result.matches, listed, pods, is_complete=pods >= result.pods)

    def _add(self, matches: int, listed: int, pods: int, *, is_complete: bool) -> "SearchProgress":
        # Each request starts at the first match that is not listed yet, and counts from there again.
        total = max(self.matches, self.listed + matches)
        return SearchProgress(total, self.listed + listed, pods, is_complete)


def parse_progress(query: Mapping[str, str]) -> SearchProgress:
    """Parse the parameters of a request that continues a search."""

    def number(name: str) -> int:
        text = query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0

    return SearchProgress(number("matches"), number("listed"), number("pods"), query.get("complete") == "on")
