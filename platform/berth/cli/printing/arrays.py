"""Parse array references such as `sweep[0-9]`, and print the progress of arrays."""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from berth.cli.exits import InvalidInput, invalid_value_error
from berth.cli.printing.output import print_fields, print_section
from berth.cli.printing.text import format_number, format_time, printable

if TYPE_CHECKING:
    from datetime import datetime

    from berth.client import Client
    from berth.client.models.arrays import Array, ArrayDetail, TaskCounts
    from berth.client.models.workloads import Workload, WorkloadDetail

WITH_INDEXES = re.compile(r"(?P<array>[^\[\]]+)\[(?P<indexes>[^\[\]]*)\]")
INDEXES_FORM = "indexes and ranges, for example 7, 0-99 or 0-99:10, separated by commas"
ARRAY_FORM = f"{INDEXES_FORM}, then optionally % and the maximum number of running tasks: 0-999%50"


@dataclass(frozen=True)
class CommandTarget:
    """Workload, array, or selected array tasks that a command acts on.

    If `indexes` is None, all tasks are selected.
    """

    workload: "WorkloadDetail | None" = None
    array: "ArrayDetail | None" = None
    indexes: Sequence[str] | None = None


def find_target(client: "Client", reference: str) -> CommandTarget:
    """Return the workload, array or tasks that NAME, ID or ARRAY[INDEXES] refers to.

    If several match, live ones take precedence over ended ones, and then the latest is chosen. Raises
    NotFound.
    """
    from berth.client.errors import NotFound

    if match := WITH_INDEXES.fullmatch(reference):
        indexes = _parse_indexes(match["indexes"])
        return CommandTarget(array=client.arrays.find(match["array"]), indexes=indexes)
    try:
        workload: WorkloadDetail | None = client.workloads.find(reference)
        missing: NotFound | None = None
    except NotFound as error:
        workload, missing = None, error
    if workload is not None and not workload.has_ended:
        return CommandTarget(workload)
    try:
        array = client.arrays.find(reference)
    except NotFound:
        if missing is not None:
            raise missing from None
        return CommandTarget(workload)
    if workload is None or not array.has_ended or array.submitted_at > workload.submitted_at:
        return CommandTarget(array=array)
    return CommandTarget(workload)


def _parse_indexes(text: str) -> Sequence[str]:
    from berth.core.spec.sections.arrays import parse_indexes

    try:
        return parse_indexes(text)
    except ValueError as error:
        raise InvalidInput(
            f"[{text}]: {str(error)!r} is not a valid index or range. Use {INDEXES_FORM}."
        ) from None


def parse_array_option(text: str | None) -> dict[str, Any] | None:
    """Parse --array into a document's `array` section. Raises InvalidInput."""
    from berth.core.spec.sections.arrays import parse_array_notation

    if text is None:
        return None
    try:
        return parse_array_notation(text)
    except ValueError as error:
        raise invalid_value_error(
            "--array", "is not a valid index, range or limit", str(error), ARRAY_FORM
        ) from None


def merge_array_section(document: dict[str, Any], section: dict[str, Any] | None) -> dict[str, Any]:
    """Return the document with the `array` section from --array merged in."""
    if section is None:
        return document
    document_section = document.get("array")
    if not isinstance(document_section, dict):
        return {**document, "array": section}
    return {**document, "array": {**document_section, **section}}


def format_progress(counts: "TaskCounts", tasks: int) -> str:
    """Return text such as "620 of 1,000 ended (3 failed), 50 running, 30 pending, 300 held"."""
    failed = f" ({counts.failed:,} failed)" if counts.failed else ""
    active = counts.reserved + counts.starting + counts.running + counts.stopping
    others = {
        "running": active, "pending": counts.pending, "held": counts.held, "suspended": counts.suspended,
    }  # fmt: skip
    return ", ".join(
        [
            f"{counts.ended:,} of {tasks:,} ended{failed}",
            *(f"{count:,} {name}" for name, count in others.items() if count),
        ]
    )


class ArrayRow:
    """Row of `berth list` for an array. The row has the same fields as a workload's row."""

    def __init__(self, array: "Array") -> None:
        counts = array.counts
        active = counts.starting + counts.running + counts.stopping
        self._array = array
        self.id, self.project, self.submitted_by = array.id, array.project, array.submitted_by
        self.name = f"{array.name}[{array.tasks}]"
        self.phase, self.priority, self.kind = array.state, array.priority, "array"
        self.gpus = SimpleNamespace(
            now=active * array.gpus, requested=(array.tasks - counts.ended) * array.gpus
        )
        self.pods = SimpleNamespace(running=active, maximum=array.max_running or array.tasks)
        self.pool = self.run = "-"
        self.preemptions = None
        self.cost = array.cost
        self.submitted_at = array.submitted_at
        self.since: datetime = array.ended_at or array.submitted_at
        self.reason, self.message = format_progress(counts, array.tasks), ""

    def to_dict(self) -> dict[str, Any]:
        return self._array.to_dict()


def merge_rows(
    workloads: Iterable["Workload"], arrays: Iterable["Array"], sort: str
) -> list["Workload | ArrayRow"]:
    rows: list[Any] = [*workloads, *(ArrayRow(array) for array in arrays)]
    key = sort.lstrip("-")

    def value(row: Any) -> Any:
        return row.gpus.requested if key == "gpus" else getattr(row, key)

    return sorted(rows, key=value, reverse=sort.startswith("-"))


def print_array(array: "ArrayDetail") -> None:
    """Print an array's fields and the number of tasks in each phase."""
    counts = {name: f"{count:,}" for name, count in array.counts.to_dict().items() if count}
    limit = "" if array.max_running is None else f", at most {array.max_running:,} at a time"
    print_fields(
        [
            ("Array", array.handle),
            ("ID", array.id),
            ("Department", array.department),
            ("State", array.state),
            ("Tasks", f"{array.tasks:,}{limit}"),
            ("Progress", format_progress(array.counts, array.tasks)),
            ("Stop rule", _describe_rule(array.spec.get("array", {}).get("stop"))),
            ("Priority", str(array.priority)),
            ("GPUs", f"{format_number(array.gpus)} per task"),
            ("Submitted", f"{format_time(array.submitted_at)} by {array.submitted_by or 'a deleted user'}"),
            ("Ended", format_time(array.ended_at) if array.ended_at else ""),
        ]
    )
    print_section("Tasks by phase")
    print_fields(list(counts.items()))
    print(f"\nTo list the tasks, run: berth list --all --array {array.handle}")


def _describe_rule(rule: dict[str, Any] | None) -> str:
    if not rule:
        return ""
    words = "above" if rule.get("goal", "min") == "min" else "below"
    return f"{rule['metric']} {words} the median, from step {rule['after_steps']} on"


def follow_array(client: "Client", array: "Array") -> "ArrayDetail":
    """Print the progress of an array to stderr until it ends. Return the ended array."""
    for last in client.arrays.changes(array.id):
        progress = format_progress(last.counts, last.tasks)
        print(
            printable(f"{last.handle} is {last.state}: {progress}"),
            file=sys.stderr,
            flush=True,
        )
    return last
