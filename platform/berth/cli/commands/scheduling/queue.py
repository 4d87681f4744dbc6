"""The `berth queue`, `berth share`, `berth cycles` and `berth replay` commands."""

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.exits import ExitCode, InvalidInput
from berth.cli.options.arguments import OptionalPoolArgument, open_client
from berth.cli.options.quantities import parse_timestamp
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import Column, Output, OutputOption, WatchOption, show_list, show_one
from berth.cli.printing.quota_table import columns_with_headings, format_status_gpus, quota_rows
from berth.cli.printing.text import (
    format_age,
    format_number,
    format_short_time,
    format_time,
    print_message,
    printable,
    utc_now,
)

if TYPE_CHECKING:
    from berth.client.models.scheduling import PendingWorkload


def queue(
    *,
    pool: OptionalPoolArgument = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to show, in queue order.")] = 100,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the pending workloads of a pool in queue order.

    \b
    berth queue
    berth queue train -o wide     # explain each position
    """
    with open_client() as client:
        name = pool
        if name is None:
            names = [node_pool.name for node_pool in client.node_pools.list()]
            if not names:
                raise InvalidInput(
                    "queue: you cannot see any node pools. Ask an admin for a role in a project."
                )
            if len(names) > 1:
                raise InvalidInput(f"queue: there are several pools. Specify one of: {', '.join(names)}")
            name = names[0]
        if watch:
            print_listing(
                lambda: client.queues.read(name, limit=limit).items, _queue_columns, output, "", watch=True
            )
            return
        response = client.queues.read(name, limit=limit)

    if output is Output.CSV:
        show_list(response.items, _queue_columns(), output, "")
        return

    def describe(_: object) -> None:
        show_list(response.items, _queue_columns(), output, f"No pending workloads in {name}.")
        if (hidden := response.workloads - len(response.items)) > 0:
            print_message(f"{hidden:,} more pending workloads exceed --limit or are not visible to you")

    show_one(response, output, describe)


def _queue_columns() -> list[Column]:
    moment = utc_now()
    return [
        Column("POSITION", _format_position, right=True),
        Column("NAME", lambda w: w.name),
        Column("PROJECT", lambda w: w.project),
        Column("GPUS", lambda w: format_number(w.gpus), right=True),
        Column("PRIORITY", lambda w: str(w.priority), right=True, optional=True),
        Column("AGE", lambda w: format_age(w.submitted_at, moment), right=True, optional=True),
        Column("STARTS IN", lambda w: _format_start(w.expected_start, moment), right=True),
        Column("ORDERING", lambda w: "; ".join(w.ordering), wide=True),
        Column("REASON", lambda w: ": ".join(part for part in (w.reason, w.message) if part), flexible=True),
    ]


def _format_position(workload: "PendingWorkload") -> str:
    if workload.phase == "reserved":
        return "reserved"
    return "new" if workload.queue_position is None else str(workload.queue_position)


def _format_start(starts: datetime | None, moment: datetime) -> str:
    return "-" if starts is None else format_age(moment, starts)


def cycles(
    *,
    since: Annotated[str | None, typer.Option(help="Start time: a timestamp, or an age such as 2h.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to show, newest first.")] = 20,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List scheduling cycles, newest first. Platform admins only.

    \b
    berth cycles --since 2h
    berth cycles --limit 5 --watch
    """
    filters = {} if since is None else {"since": parse_timestamp("--since", since, utc_now())}
    with open_client() as client:
        print_listing(
            lambda: list(client.cycles.list(limit=limit, **filters)), _cycle_columns, output, "No cycles.",
            watch=watch,
        )  # fmt: skip


def replay(
    *,
    cycle: Annotated[int, typer.Argument(metavar="CYCLE", help="Cycle number; see `berth cycles`.")],
    save: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="File to write the cycle's input to, as a scenario for `berth simulate`."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Replay a stored cycle and compare its decisions. Exits with code 1 if they differ.

    \b
    berth replay 1812
    berth replay 1812 --save cycle.json && berth simulate cycle.json
    """
    with open_client() as client:
        comparison = client.cycles.replay(cycle)
        scenario = None if save is None else client.cycles.scenario(cycle)
    if save is not None:
        _write_scenario(save, scenario)

    def describe(_: object) -> None:
        print(printable(comparison.summary))
        for line in comparison.differences:
            print(f"  {printable(line)}")
        if comparison.differing > len(comparison.differences):
            print(f"  ... and {comparison.differing - len(comparison.differences)} more")

    show_one(comparison, output, describe)
    if not comparison.identical:
        raise typer.Exit(ExitCode.REJECTED)


def _write_scenario(file: str, scenario: object) -> None:
    if scenario is None:
        raise InvalidInput(
            "the input of this cycle is not stored. Choose a more recent cycle from `berth cycles`."
        )
    try:
        Path(file).write_text(json.dumps(scenario, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--save: {file} cannot be written: {error.strerror or error}") from None
    print_message(f"{file} written")


def _cycle_columns() -> list[Column]:
    return [
        Column("CYCLE", lambda c: str(c.id), right=True),
        Column("TIME", lambda c: format_time(c.at), brief=lambda c: format_short_time(c.at)),
        Column("TRIGGER", lambda c: c.trigger, optional=True),
        Column("NODES", lambda c: format_number(c.nodes), right=True, wide=True),
        Column("WORKLOADS", lambda c: format_number(c.workloads), right=True, optional=True),
        Column("PENDING", lambda c: format_number(c.pending), right=True),
        Column("APPLIED", lambda c: format_number(c.applied), right=True),
        Column("STALE", lambda c: format_number(c.stale), right=True, wide=True),
        Column("EVICTIONS", lambda c: format_number(c.evictions), right=True),
        Column("DECIDE MS", lambda c: f"{c.decide_ms:.1f}", right=True),
        Column("ENGINE", lambda c: c.engine, wide=True),
    ]


def share(
    *,
    pool: OptionalPoolArgument = None,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show quota, fair share, allocation and decayed usage of each queue, in GPUs.

    \b
    berth share
    berth share train -o wide
    berth quota show vision --why     # explain how the fair share is computed
    """
    with open_client() as client:
        print_listing(
            lambda: quota_rows(client, pool, output), _share_columns, output, "No quotas.", watch=watch
        )


def _share_columns() -> list[Column]:
    return columns_with_headings("QUEUE", [
        Column("QUOTA", lambda q: format_number(q.gpu, "unlimited"), right=True),
        Column("FAIR SHARE", lambda q: format_status_gpus(q, "share"), right=True),
        Column("ALLOCATED", lambda q: format_status_gpus(q, "allocated"), right=True),
        Column("RESERVED", lambda q: format_status_gpus(q, "reserved"), right=True, optional=True),
        Column("OVER QUOTA", lambda q: format_number(_gpus_over_quota(q)), right=True, optional=True),
        Column("REQUESTED", lambda q: format_status_gpus(q, "requested"), right=True, optional=True),
        Column("DECAYED USAGE", _format_decayed_usage, right=True, optional=True),
        Column("RANK", lambda q: "-" if q.rank is None else str(q.rank), right=True, wide=True),
    ])  # fmt: skip


def _gpus_over_quota(quota: Any) -> float | None:
    statuses = [status for status in (quota.status, *(quota.pools or {}).values()) if status is not None]
    if not statuses or quota.gpu is None:
        return None
    return max(0.0, sum(status.allocated.gpu + status.reserved.gpu for status in statuses) - quota.gpu)


def _format_decayed_usage(quota: Any) -> str:
    return "-" if quota.status is None else f"{quota.status.usage.gpu:.3f}"
