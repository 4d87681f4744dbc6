"""The `berth events`, `berth evictions`, `berth audit` and `berth health` commands."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.exits import ExitCode, InvalidInput
from berth.cli.options.arguments import (
    DepartmentOption,
    PoolOption,
    ProjectOption,
    open_client,
    workload_names,
)
from berth.cli.options.quantities import parse_timestamp
from berth.cli.printing.columns import event_columns, eviction_columns, project_pair_columns
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import (
    Column,
    Output,
    OutputOption,
    WatchOption,
    print_fields,
    show_list,
    show_one,
)
from berth.cli.printing.text import (
    format_age,
    format_short_time,
    format_time,
    format_value,
    print_message,
    utc_now,
)

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.people import AuditEntry
    from berth.client.models.scheduling import Health

Since = Annotated[str | None, typer.Option(help="Start time: a timestamp, or an age such as 2h.")]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of rows to show, newest first.")]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="WORKLOAD", autocompletion=workload_names, help="Name, PROJECT/NAME or ID of the workload."
    ),
]


def events(
    *,
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="[WORKLOAD]",
            autocompletion=workload_names,
            help="Name, PROJECT/NAME or ID of the workload.",
        ),
    ] = None,
    project: ProjectOption = None,
    kind: Annotated[str | None, typer.Option(help="Kind of event.")] = None,
    since: Since = None,
    limit: Limit = 50,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List events, oldest first.

    \b
    berth events vision/train
    berth events --project vision --since 2h
    """
    with open_client() as client:
        filters = {
            "workload": _resolve_id(client, workload),
            "project": project,
            "kind": kind,
            "since": _parse_timestamp(since),
        }
        print_listing(
            lambda: list(client.events.list(limit=limit, **filters))[::-1], event_columns, output,
            "No events.", watch=watch,
        )  # fmt: skip


def evictions(
    *,
    kind: Annotated[
        str | None,
        typer.Option(help="Kind: shrink, consolidate, reclaim, preempt, stale_gang, drain or cluster."),
    ] = None,
    pool: PoolOption = None,
    project: ProjectOption = None,
    preemptor: Annotated[
        str | None,
        typer.Option(metavar="WORKLOAD", autocompletion=workload_names, help="Preemptor, as PROJECT/NAME."),
    ] = None,
    workload: Name = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option(help="End time: a timestamp, or an age such as 2h.")] = None,
    limit: Limit = 50,
    csv: Annotated[bool, typer.Option("--csv", help="Write all evictions as CSV.")] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Show totals for each pair of projects.")] = False,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List evictions, newest first.

    \b
    berth evictions --project vision --since 7d
    berth evictions --preemptor speech/urgent
    berth evictions --csv > evictions.csv
    berth evictions --matrix --since 30d
    """
    with open_client() as client:
        filters: dict[str, object] = {
            "kind": kind,
            "pool": pool,
            "project": project,
            "preemptor": _resolve_id_or_name(client, preemptor),
            "workload": _resolve_id_or_name(client, workload),
            "since": _parse_timestamp(since),
            "until": _parse_timestamp(until, "--until"),
        }
        if matrix:
            _show_matrix(client, {**filters, "limit": min(limit, 500)}, output)
            return
        if csv:
            for piece in client.evictions.csv(**filters):
                sys.stdout.buffer.write(piece)
            return
        print_listing(
            lambda: list(client.evictions.list(limit=limit, **filters)), eviction_columns, output,
            "No evictions.", watch=watch,
        )  # fmt: skip


def _show_matrix(client: "Client", filters: dict[str, object], output: Output) -> None:
    if filters.pop("workload") is not None:
        raise InvalidInput(
            "--matrix cannot be combined with --workload. Use --project, --preemptor, --pool or --kind."
        )
    matrix = client.evictions.matrix(**filters)
    if output is Output.CSV:
        show_list(matrix.pairs, project_pair_columns(), output, "No evictions.")
        return

    def describe(_: object) -> None:
        show_list(matrix.pairs, project_pair_columns(), output, "No evictions.")
        if matrix.omitted:
            print_message(f"{matrix.omitted:,} more pairs; --limit shows up to 500")

    show_one(matrix, output, describe)


def _resolve_id(client: "Client", reference: str | None) -> str | None:
    return None if reference is None else client.workloads.find(reference).id


def _resolve_id_or_name(client: "Client", reference: str | None) -> str | None:
    """Return the workload's ID, or the name if the workload has been deleted."""
    from berth.client import NotFound

    try:
        return _resolve_id(client, reference)
    except NotFound:
        return str(reference).rpartition("/")[2]


def _parse_timestamp(text: str | None, option: str = "--since") -> str | None:
    return None if text is None else parse_timestamp(option, text, utc_now())


def audit(
    *,
    by: Annotated[str | None, typer.Option(help="User who made the change.")] = None,
    action: Annotated[str | None, typer.Option(help="Action, for example create, edit or grant.")] = None,
    kind: Annotated[str | None, typer.Option(help="Object type, for example quota.")] = None,
    name: Annotated[str | None, typer.Option(help="Object name.")] = None,
    project: ProjectOption = None,
    department: DepartmentOption = None,
    since: Annotated[str | None, typer.Option(help="Start time: a timestamp, or an age such as 2h.")] = None,
    until: Annotated[str | None, typer.Option(help="End time: a timestamp, or an age such as 2h.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to show, newest first.")] = 50,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the entries of the audit log, newest first. Entries cannot be changed.

    \b
    berth audit --since 7d --by carol
    berth audit --kind quota --project vision -o json
    """
    filters = {
        "actor": by,
        "action": action,
        "object_type": kind,
        "object_name": name,
        "project": project,
        "department": department,
        "since": None if since is None else parse_timestamp("--since", since, utc_now()),
        "until": None if until is None else parse_timestamp("--until", until, utc_now()),
    }
    with open_client() as client:
        print_listing(
            lambda: list(client.audit.list(limit=limit, **filters)), _audit_columns, output, "No entries.",
            watch=watch,
        )  # fmt: skip


def health(output: OutputOption = Output.TABLE) -> None:
    """Check the scheduler leader and the invariants. Platform admins only.

    Exits with code 1 if there is a problem.

    \b
    berth health
    berth health -o json || alert
    """
    with open_client() as client:
        state = client.cycles.health()
    show_one(state, output, lambda _: _print_health(state))
    if not state.is_healthy:
        raise typer.Exit(ExitCode.REJECTED)


def _print_health(state: "Health") -> None:
    leader, cycle = state.leader, state.last_cycle
    leader_text = f"{leader.holder}, epoch {leader.epoch}" if leader else "none"
    if leader and not leader.alive:
        leader_text += ", lease expired"
    cycle_text = "none yet"
    if cycle:
        duration_ms = cycle.observe_ms + cycle.decide_ms + cycle.commit_ms
        cycle_text = f"{cycle.id}, {format_time(cycle.at)}, {duration_ms:.1f} ms"
    broken = [invariant for invariant in state.invariants if not invariant.ok]
    print_fields(
        [
            ("Leader", leader_text),
            ("Lease renewed", f"{format_value(state.wake.last_renewal_seconds)} s ago" if state.wake else ""),
            ("Last cycle", cycle_text),
            ("Pending", str(state.pending)),
            ("Invariants", f"{len(state.invariants) - len(broken)} of {len(state.invariants)} hold"),
        ]
    )
    for invariant in broken:
        print_message(f"{invariant.name}: {invariant.detail}")


def _audit_columns() -> list[Column]:
    current_time = utc_now()
    return [
        Column("TIME", lambda c: format_time(c.at), brief=lambda c: format_short_time(c.at)),
        Column("AGE", lambda c: format_age(c.at, current_time), right=True, wide=True),
        Column("BY", lambda c: c.actor or "-"),
        Column("ACTION", lambda c: c.action),
        Column("KIND", lambda c: c.object_type, optional=True),
        Column("NAME", lambda c: c.object_name),
        Column("CHANGED", _format_changes, flexible=True),
        Column("REQUEST", lambda c: c.request_id, wide=True),
    ]


def _format_changes(change: "AuditEntry") -> str:
    before: Any = change.before if isinstance(change.before, dict) else {}
    after: Any = change.after if isinstance(change.after, dict) else {}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(_format_change(name, before, after) for name in names)


def _format_change(name: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    if name not in before:
        return f"{name} {format_value(after[name])}"
    return f"{name} {format_value(before[name])} -> {format_value(after[name]) if name in after else 'none'}"
