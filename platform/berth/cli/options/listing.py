"""Options for `berth list`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.options.arguments import DepartmentOption, PoolOption, ProjectOption
from berth.cli.printing.arrays import merge_rows
from berth.cli.printing.output import Output, OutputOption, WatchOption

if TYPE_CHECKING:
    from berth.cli.printing.arrays import ArrayRow
    from berth.client import Client
    from berth.client.models.workloads import Workload

LIVE_PHASES = ("pending", "reserved", "starting", "running", "stopping", "suspended")
DEFAULT_LIMIT = 500


@dataclass(frozen=True)
class ListOptions:
    project: ProjectOption = None
    department: DepartmentOption = None
    pool: PoolOption = None
    phase: Annotated[list[str] | None, typer.Option(help="Phase to filter by; repeatable.")] = None
    kind: Annotated[
        str | None, typer.Option(help="Kind to filter by: training, elastic, interactive or service.")
    ] = None
    reason: Annotated[
        str | None, typer.Option(help="Reason to filter by, for example WouldExceedFairShare.")
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Label to filter by; repeatable."),
    ] = None
    by: Annotated[str | None, typer.Option(help="User who submitted the workload.")] = None
    search: Annotated[str | None, typer.Option(help="Text to search for in the workload name.")] = None
    array: Annotated[str | None, typer.Option(help="List the tasks of this array.", metavar="ARRAY")] = None
    tasks: Annotated[bool, typer.Option("--tasks", "-t", help="List array tasks instead of arrays.")] = False
    sort: Annotated[
        str,
        typer.Option(
            help="Sort key: submitted_at, name, priority, phase or gpus. Prefix with - to reverse the order."
        ),
    ] = "-submitted_at"
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Include workloads that have ended.")] = False
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to show.")] = DEFAULT_LIMIT
    watch: WatchOption = False
    output: OutputOption = Output.TABLE

    def rows(self, client: "Client") -> list["Workload | ArrayRow"]:
        """Return the workloads, with one row per array unless the user asks for tasks."""
        if self.tasks or self.array or self._selects_tasks:
            return [*self.workloads(client)]
        filters: dict[str, object] = {
            "project": self.project, "submitted_by": self.by, "search": self.search,
            "costs": self.output is not Output.TABLE or None,
        }  # fmt: skip
        state = None if self.show_all else "active"
        sort = self.sort if self.sort.lstrip("-") in ("submitted_at", "name") else "-submitted_at"
        arrays = client.arrays.list(limit=self.limit, state=state, sort=sort, **filters)
        return merge_rows(self.workloads(client, in_array=False), arrays, self.sort)[: self.limit]

    @property
    def _selects_tasks(self) -> bool:
        return any((self.department, self.pool, self.phase, self.kind, self.reason, self.label))

    def workloads(self, client: "Client", in_array: bool | None = None) -> list["Workload"]:
        phases = tuple(self.phase or (() if self.show_all else LIVE_PHASES))
        filters: dict[str, object] = {
            "project": self.project, "department": self.department, "pool": self.pool, "phase": phases,
            "kind": self.kind, "reason": self.reason, "label": tuple(self.label or ()),
            "submitted_by": self.by, "search": self.search, "sort": self.sort, "in_array": in_array,
            "array": client.arrays.find(self.array).id if self.array else None,
        }  # fmt: skip
        return list(client.workloads.list(limit=self.limit, **filters))
