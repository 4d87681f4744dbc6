"""`berth audit` and `berth health`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.exits import ExitCode
from berth.cli.link import connected
from berth.cli.listing import WatchOption, listing
from berth.cli.names import DepartmentOption, ProjectOption
from berth.cli.output import Column, Output, OutputOption, print_fields, show_one
from berth.cli.quantities import moment
from berth.cli.text import age, local, now, plain, safe, short

if TYPE_CHECKING:
    from berth.client.people_answers import Change, Health


def audit(
    *,
    by: Annotated[str | None, typer.Option("--by", help="By this person.")] = None,
    action: Annotated[str | None, typer.Option(help="Such as create, edit, grant.")] = None,
    kind: Annotated[str | None, typer.Option(help="Of this kind of thing, such as quota.")] = None,
    name: Annotated[str | None, typer.Option(help="Of what has this name.")] = None,
    project: ProjectOption = None,
    department: DepartmentOption = None,
    since: Annotated[str | None, typer.Option(help="From then on: a time, or so long ago, as 2h.")] = None,
    until: Annotated[str | None, typer.Option(help="Before then.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 50,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Who changed what; the latest first. Nothing of it is ever changed.

    \b
    berth audit --since 7d --by carol
    berth audit --kind quota --project vision -o json
    """
    filters = {
        "actor": by, "action": action, "object_type": kind, "object_name": name, "project": project,
        "department": department, "since": None if since is None else moment("--since", since, now()),
        "until": None if until is None else moment("--until", until, now()),
    }  # fmt: skip
    with connected() as client:
        listing(
            lambda: list(client.audit.list(limit=limit, **filters)), _columns, output, "No changes.",
            watch=watch,
        )  # fmt: skip


def health(output: OutputOption = Output.TABLE) -> None:
    """Does somebody lead, and do the laws hold right now? Exit 1 if not. For platform admins.

    \b
    berth health
    berth health -o json || alert
    """
    with connected() as client:
        found = client.cycles.health()
    show_one(found, output, lambda _: _tell(found))
    if not found.is_well:
        raise typer.Exit(ExitCode.REFUSED)


def _tell(found: "Health") -> None:
    leader, cycle = found.leader or {}, found.last_cycle or {}
    leads = f"{leader['holder']}, epoch {leader['epoch']}" if leader else "nobody"
    if leader and not leader.get("alive"):
        leads += ", but its lease has run out"
    took = sum(float(cycle.get(step) or 0) for step in ("observe_ms", "decide_ms", "commit_ms"))
    broken = [law for law in found.invariants if not law.get("ok")]
    print_fields(
        [
            ("Leads", leads),
            ("Renewed", f"{plain(found.wake.get('last_renewal_seconds'))} s ago" if found.wake else ""),
            ("Last cycle", f"{cycle['id']}, {cycle['at']}, {took:.1f} ms" if cycle else "none yet"),
            ("Pending", str(found.pending)),
            ("Laws", f"{len(found.invariants) - len(broken)} of {len(found.invariants)} hold"),
        ]
    )
    for law in broken:
        print(f"berth: {safe(law.get('name'))}: {safe(law.get('detail'))}", file=sys.stderr)


def _columns() -> list[Column]:
    moment_now = now()
    return [
        Column("TIME", lambda c: local(c.at), brief=lambda c: short(c.at)),
        Column("AGE", lambda c: age(c.at, moment_now), right=True, wide=True),
        Column("BY", lambda c: c.actor or "-"),
        Column("ACTION", lambda c: c.action),
        Column("KIND", lambda c: c.object_type, spare=True),
        Column("NAME", lambda c: c.object_name),
        Column("CHANGED", _changed, grows=True),
        Column("REQUEST", lambda c: c.request_id, wide=True),
    ]


def _changed(change: "Change") -> str:
    """Of each value that is another one: from what to what."""
    before: Any = change.before if isinstance(change.before, dict) else {}
    after: Any = change.after if isinstance(change.after, dict) else {}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(_moved(name, before, after) for name in names)


def _moved(name: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    if name not in before:
        return f"{name} {plain(after[name])}"
    return f"{name} {plain(before[name])} -> {plain(after[name]) if name in after else 'none'}"
