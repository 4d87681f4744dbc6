"""Failed tasks of arrays, grouped by the cause of their failure."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, Min

from berth.core.values.signals import SHELL_OFFSET, signal_name
from berth.core.wording.words import format_count, token_to_words
from projects.models import Phase, Workload

GENERAL_REASONS = ("", "Failed", "PodFailed")  # reasons that add no information to the exit code
LISTED_MAX = 2


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed tasks with the same reason and exit code. `first` is the lowest task index."""

    reason: str
    exit_code: int | None
    count: int
    first: int

    @property
    def cause(self) -> str:
        """Cause as text, such as "exit code 1", "SIGKILL" or "out of memory"."""
        if self.reason not in GENERAL_REASONS:
            return token_to_words(self.reason).lower()
        if self.exit_code is None:
            return "could not be started"
        if self.exit_code <= SHELL_OFFSET:
            return f"exit code {self.exit_code}"
        name = signal_name(self.exit_code - SHELL_OFFSET)
        return f"exit code {name}" if name.isdigit() else name


def failures_by_array(arrays: Collection[uuid.UUID]) -> Mapping[uuid.UUID, list[FailureGroup]]:
    """Return each array's groups of failed tasks, largest first, using one query."""
    rows = Workload.objects.filter(array__in=list(arrays), phase=Phase.FAILED, superseded=False).order_by()
    groups: dict[uuid.UUID, list[FailureGroup]] = {}
    for pk, reason, exit_code, count, first in rows.values_list("array", "reason", "exit_code").annotate(
        count=Count("pk"), first=Min("array_index")
    ):
        groups.setdefault(pk, []).append(FailureGroup(reason, exit_code, count, first))
    for own in groups.values():
        own.sort(key=lambda group: (-group.count, group.first))
    return groups


def failure_sentence(groups: Sequence[FailureGroup], tasks: int) -> str:
    """Return a sentence without its full stop, such as "30 of 30 tasks failed (exit code 1)"."""
    failed = sum(group.count for group in groups)
    return f"{failed:,} of {format_count(tasks, 'task')} failed ({failure_causes(groups)})"


def failure_causes(groups: Sequence[FailureGroup]) -> str:
    """Return the most frequent causes, such as "exit code 1" or "25 exit code 1, 5 SIGKILL".

    Return an empty string if no tasks have failed.
    """
    if len(groups) == 1:
        return groups[0].cause
    causes = [f"{group.count:,} {group.cause}" for group in groups[:LISTED_MAX]]
    if others := sum(group.count for group in groups[LISTED_MAX:]):
        causes.append(f"{others:,} other")
    return ", ".join(causes)
