"""Workloads that must end before a pending workload is expected to start."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from berth.core.wording.awaited import describe_workload_ends
from scheduler.reports.visibility import HIDDEN_WORKLOAD, Viewer, project_from_handle

MAX_AWAITED = 5  # maximum number of workloads that are stored and shown; those that end last are kept


@dataclass(frozen=True, slots=True)
class AwaitedEnd:
    """Workload that must end before the expected start. `workload` is `project/name`, or redacted."""

    workload: str
    end: datetime

    @property
    def is_visible(self) -> bool:
        return self.workload != HIDDEN_WORKLOAD


def encode_awaited_ends(after: Sequence[tuple[str, int]]) -> list[tuple[str, str]]:
    """Convert a forecast's workload names and end times to their stored form, with times in ISO 8601."""
    return [(name, datetime.fromtimestamp(end, UTC).isoformat()) for name, end in after[-MAX_AWAITED:]]


def awaited_ends(viewer: Viewer, stored: Iterable[Sequence[str]]) -> list[AwaitedEnd]:
    """Return the stored workloads that must end first, redacting names that the viewer may not see."""
    return [
        AwaitedEnd(
            name if viewer.can_see_project_named(project_from_handle(name)) else HIDDEN_WORKLOAD,
            datetime.fromisoformat(end),
        )
        for name, end in stored
    ]


def describe_workload_ends_in_utc(ends: Sequence[AwaitedEnd], notes: Mapping[str, str]) -> str:
    """Return a clause with times in UTC, such as "when ads/ctr-nightly (2026-11-30 05:58:00 UTC) ends"."""
    return describe_workload_ends(
        [(each.workload, f"{each.end:%Y-%m-%d %H:%M:%S} UTC{notes.get(each.workload, '')}") for each in ends]
    )
