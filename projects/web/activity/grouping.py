"""Group similar audit entries within a minute, so that changes by a script do not fill the page."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from projects.web.activity.entries import ActivityEntry

MIN_GROUP = 3  # minimum number of similar entries in a minute that form a group
MAX_NAMES = 4  # maximum number of objects named in a group's sentence


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """Audit entries of one minute with the same actor and verb, shown as one expandable sentence."""

    entries: list[ActivityEntry]

    @property
    def first_entry(self) -> ActivityEntry:
        return self.entries[0]

    @property
    def verb(self) -> str:
        """Return the verb with the number of objects, such as "submitted 12 workloads"."""
        return self.first_entry.in_group.format(len(self.entries))

    @property
    def first_entries_by_object(self) -> list[ActivityEntry]:
        """Return the first entry of each object, for at most MAX_NAMES objects."""
        by_name = {entry.name: entry for entry in reversed(self.entries)}
        return list(reversed(by_name.values()))[:MAX_NAMES]

    @property
    def unnamed_count(self) -> int:
        return len({entry.name for entry in self.entries}) - len(self.first_entries_by_object)


def group_entries(entries: Iterable[ActivityEntry]) -> Iterator[ActivityEntry | EntryGroup]:
    """Yield the entries in order, with similar entries from the same minute combined into a group.

    Entries of different quota changes are not grouped.
    """
    for _, of_minute in groupby(entries, key=_entry_minute):
        yield from _group_minute(list(of_minute))


def _group_minute(entries: list[ActivityEntry]) -> Iterator[ActivityEntry | EntryGroup]:
    similar: dict[tuple[str, str, int | None], list[ActivityEntry]] = defaultdict(list)
    for entry in entries:
        similar[entry.row.actor, entry.in_group, entry.row.change_id].append(entry)
    for entry in entries:
        group = similar[entry.row.actor, entry.in_group, entry.row.change_id]
        if not entry.in_group or len(group) < MIN_GROUP:
            yield entry
        elif entry is group[0]:
            yield EntryGroup(group)


def _entry_minute(entry: ActivityEntry) -> datetime:
    return entry.row.at.replace(second=0, microsecond=0)
