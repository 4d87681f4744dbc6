"""Filters of `berth list`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.listing import WatchOption
from berth.cli.names import DepartmentOption, PoolOption, ProjectOption
from berth.cli.output import Output, OutputOption

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.answers import Workload

LIVE = ("pending", "reserved", "starting", "running", "stopping", "suspended")
SHOWN = 500


@dataclass(frozen=True)
class Selection:
    """Every option of `berth list`."""

    project: ProjectOption = None
    department: DepartmentOption = None
    pool: PoolOption = None
    phase: Annotated[list[str] | None, typer.Option(help="In this phase; repeat.")] = None
    kind: Annotated[str | None, typer.Option(help="training, elastic, interactive or service.")] = None
    reason: Annotated[str | None, typer.Option(help="With this reason, such as OverFairShare.")] = None
    label: Annotated[list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Repeat.")] = (
        None
    )
    by: Annotated[str | None, typer.Option("--by", help="Submitted by this person.")] = None
    search: Annotated[str | None, typer.Option(help="With this in the name.")] = None
    sort: Annotated[
        str, typer.Option(help="submitted_at, name, priority, phase or gpus; - before it turns the order.")
    ] = "-submitted_at"
    every: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = SHOWN
    watch: WatchOption = False
    output: OutputOption = Output.TABLE

    def found(self, client: "Client") -> list["Workload"]:
        phases = tuple(self.phase or (() if self.every else LIVE))
        filters: dict[str, object] = {
            "project": self.project, "department": self.department, "pool": self.pool, "phase": phases,
            "kind": self.kind, "reason": self.reason, "label": tuple(self.label or ()),
            "submitted_by": self.by, "search": self.search, "sort": self.sort,
        }  # fmt: skip
        return list(client.workloads.list(limit=self.limit, **filters))
