"""`berth quota`: show, set, preview, apply and revert quotas."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from berth.cli.arguments import OwnerArgument, PoolOption, connected, owner_names, pool_names
from berth.cli.documents import REMOVE_FORM, SET_FORM, draft_of
from berth.cli.exits import BadInput, ExitCode, explain_error
from berth.cli.explain import print_impact, print_shares, quota_line
from berth.cli.output import Column, Output, OutputOption, WatchOption, listing, show_list, show_one
from berth.cli.quantities import amount, amount_or_unlimited, to_come
from berth.cli.text import local, now, number, plain, safe, short

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.tenants import QuotaChange

app = typer.Typer(
    no_args_is_help=True, help="Quotas: resources that a department or project can count on in a node pool."
)
Amount = str | None


@app.command("show")
def show(
    owner: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Department or project to show.", autocompletion=owner_names),
    ] = None,
    pool: PoolOption = None,
    why: Annotated[bool, typer.Option("--why", help="Explain how the fair share is computed.")] = False,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show quota, fair share, allocated and requested GPUs.

    \b
    berth quota show
    berth quota show vision --pool local -o wide
    berth quota show vision --why
    """
    if why:
        _why(owner, pool, output)
        return
    with connected() as client:
        listing(lambda: sorted_quotas(client, pool, owner), quota_columns, output, "No quotas.", watch=watch)


def sorted_quotas(client: "Client", pool: str | None, owner: str | None = None) -> list[Any]:
    """Return the visible quotas by pool, each department before its projects."""
    projects = {project.name: project.department for project in client.projects.list()}
    quotas = [quota for quota in client.quotas.list(pool=pool) if owner in (None, quota.owner["name"])]
    return sorted(quotas, key=lambda quota: _place(quota, projects))


def _why(owner: str | None, pool: str | None, output: Output) -> None:
    """Print the calculation of the fair share for every quota of `owner`."""
    if owner is None:
        raise BadInput("quota show --why: name a project or a department")
    with connected() as client:
        quotas = [quota for quota in client.quotas.list(pool=pool) if quota.owner["name"] == owner]
        if not quotas:
            raise BadInput(f"{owner} has no quota that you can see{'' if pool is None else f' in {pool}'}")
        stories = [
            client.quotas.share(
                "project" if quota.owner["kind"] == "project" else "department", owner, quota.pool
            )
            for quota in quotas
        ]
    show_one(stories if len(stories) > 1 else stories[0], output, lambda _: print_shares(stories))


@app.command("set")
def set_quota(
    *,
    owner: OwnerArgument,
    pool: Annotated[str, typer.Option(help="Node pool.", autocompletion=pool_names)],
    department: Annotated[bool, typer.Option("--department", help="NAME is a department.")] = False,
    gpu: Annotated[Amount, typer.Option(metavar="NUMBER|unlimited", help="Guaranteed GPUs.")] = None,
    cpu: Annotated[Amount, typer.Option(metavar="NUMBER|unlimited", help="Guaranteed CPU cores.")] = None,
    memory: Annotated[Amount, typer.Option(metavar="MIB|unlimited", help="Guaranteed memory in MiB.")] = None,
    gpu_limit: Annotated[
        Amount, typer.Option(metavar="NUMBER|unlimited", help="Maximum number of GPUs.")
    ] = None,
    cpu_limit: Annotated[
        Amount, typer.Option(metavar="NUMBER|unlimited", help="Maximum number of CPU cores.")
    ] = None,
    memory_limit: Annotated[
        Amount, typer.Option(metavar="MIB|unlimited", help="Maximum memory in MiB.")
    ] = None,
    weight: Annotated[
        Amount, typer.Option(metavar="NUMBER", help="Weight in the division of capacity over quota.")
    ] = None,
    over_quota: Annotated[
        bool | None,
        typer.Option("--over-quota/--no-over-quota", help="Allow borrowing over quota."),
    ] = None,
    rank: Annotated[
        Amount, typer.Option(metavar="NUMBER|owner", help="Rank; higher ranks are served first.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a quota, or change the named values of one. Exit code 5 if it changes at the same time.

    \b
    berth quota set vision --pool local --gpu 8 --gpu-limit 12 --weight 2
    berth quota set research --department --pool local --gpu unlimited
    """
    guaranteed = {"gpu": gpu, "cpu": cpu, "memory": memory}
    limits = {"gpu": gpu_limit, "cpu": cpu_limit, "memory": memory_limit}
    changes: dict[str, Any] = _amounts(guaranteed, "")
    if limit := _amounts(limits, "-limit"):
        changes["limit"] = limit
    if weight is not None:
        changes["weight"] = amount("--weight", weight)
    if over_quota is not None:
        changes["over_quota"] = over_quota
    if rank is not None:
        changes["rank"] = None if rank == "owner" else amount("--rank", rank)
    if not changes:
        raise BadInput(
            "quota set: name at least one value: --gpu, --cpu, --memory, --gpu-limit, --weight ..."
        )
    _store("department" if department else "project", owner, pool, changes, output)


def quota_columns() -> list[Column]:
    return [
        Column(
            "OWNER", lambda q: q.owner["name"] if q.owner["kind"] == "department" else f"  {q.owner['name']}"
        ),
        Column("POOL", lambda q: q.pool),
        Column("QUOTA", lambda q: number(q.gpu, "unlimited"), right=True),
        Column("FAIR SHARE", lambda q: standing_gpus(q, "share"), right=True, spare=True),
        Column("ALLOCATED", lambda q: standing_gpus(q, "allocated"), right=True),
        Column("REQUESTED", lambda q: standing_gpus(q, "requested"), right=True, spare=True),
        Column("LIMIT", lambda q: number(q.limit.get("gpu"), "none"), right=True, spare=True),
        Column("WEIGHT", lambda q: plain(q.weight), right=True, spare=True),
        Column("BORROWS", lambda q: "yes" if q.over_quota else "no", spare=True),
        Column("RANK", lambda q: "-" if q.rank is None else str(q.rank), right=True, wide=True),
        Column("CPU", lambda q: number(q.cpu, "unlimited"), right=True, wide=True),
        Column("MEMORY MIB", lambda q: number(q.memory_mib, "unlimited"), right=True, wide=True),
        Column("VERSION", lambda q: str(q.version), right=True, wide=True),
    ]


def _store(
    kind: Literal["department", "project"], owner: str, pool: str, changes: dict[str, Any], output: Output
) -> None:
    from berth.client import NotFound

    with connected() as client:
        try:
            client.quotas.get(kind, owner, pool)
        except NotFound:
            stored = client.quotas.create(kind, owner, pool, changes)
        else:
            stored = client.quotas.edit(kind, owner, pool, changes)

    def describe(_: object) -> None:
        show_list([stored], quota_columns(), output, "")
        if stored.standing is None:
            print("berth: its fair share is computed in the next scheduling cycle", file=sys.stderr)

    show_one(stored, output, describe)
    for warned in stored.warnings:
        print(f"Warning: {safe(warned.get('message', ''))}", file=sys.stderr)


def _amounts(options: dict[str, str | None], suffix: str) -> dict[str, Any]:
    return {
        "memory_mib" if name == "memory" else name: amount_or_unlimited(f"--{name}{suffix}", text)
        for name, text in options.items()
        if text is not None
    }


def standing_gpus(quota: Any, name: str) -> str:
    """Format `share`, `allocated` or `requested` of the last cycle in GPUs, or as a dash."""
    values = (quota.standing or {}).get(name)
    return number(values.get("gpu")) if isinstance(values, dict) else "-"


def _place(quota: Any, projects: dict[str, str]) -> tuple[str, str, bool, str]:
    """Return a sort key that orders by pool, and puts each department before its projects."""
    name, inner = quota.owner["name"], quota.owner["kind"] == "project"
    return (quota.pool, projects.get(name, "") if inner else name, inner, name)


CHANGES_NOTHING, CHANGES, FAILED = 0, 1, 255
File = Annotated[
    str | None, typer.Option("--file", "-f", help="File with `changes:`, YAML or JSON; - reads stdin.")
]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar=SET_FORM, help="Repeatable change.")]
Removes = Annotated[
    list[str] | None, typer.Option("--remove", metavar=REMOVE_FORM, help="Repeatable change.")
]
Comment = Annotated[str | None, typer.Option(help="Reason for the change.")]


@app.command("preview")
def preview(
    *, file: File = None, sets: Sets = None, removes: Removes = None, output: OutputOption = Output.TABLE
) -> None:
    """Preview the effects of quota changes. Exit code 0 without effects, 1 with effects, 255 on errors.

    \b
    berth quota preview --set research/vision:local.gpu=8 --set research:local.gpu=16
    berth quota preview -f quotas.yaml
    """
    try:
        with connected() as client:
            impact = client.quotas.preview(draft_of(client, file, sets or (), removes or (), None))
    except Exception as error:
        explanation = explain_error(error)
        if explanation is None:
            raise
        for line in explanation[1]:
            print(f"berth: {safe(line)}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    show_one(impact, output, lambda _: print_impact(impact))
    raise typer.Exit(CHANGES_NOTHING if impact.changes_nothing else CHANGES)


@app.command("apply")
def apply(
    *,
    file: File = None,
    sets: Sets = None,
    removes: Removes = None,
    comment: Comment = None,
    lapses: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="Expiry: a duration such as 3d, or a timestamp. Checked every minute.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Apply quota changes, all or none, after a preview. Exit code 5 if a quota changed at the same time.

    \b
    berth quota apply --set research/vision:local.gpu=8 --comment "vision grows"
    berth quota apply -f quotas.yaml --yes
    berth quota apply --set research/vision:local.gpu=16 --for 3d
    """
    with connected() as client:
        draft = draft_of(client, file, sets or (), removes or (), comment)
        if lapses is not None:
            draft["expires_at"] = to_come("--for", lapses, now())
        impact = client.quotas.preview(draft)
        if not yes:
            if not output.is_data:
                print_impact(impact)
            if not typer.confirm("Apply these changes?", err=True):
                raise typer.Exit(ExitCode.REFUSED)
        made = client.quotas.apply(draft, impact.tag)
    if made is None:
        print("berth: no changes: all quotas already have these values", file=sys.stderr)
        return
    change = made
    show_one(change, output, lambda _: print(f"Change {change.id} applied."))


@app.command("history")
def history(
    *,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows, newest first.")] = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """List quota changes and reverts, newest first.

    \b
    berth quota history --limit 5
    """
    with connected() as client:
        changes = list(client.quotas.changes(limit=limit))
    show_list(changes, _columns(), output, "No entries.")


@app.command("revert")
def revert(
    *,
    change: Annotated[int, typer.Argument(metavar="CHANGE", help="Change number, see berth quota history.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Revert a change. Exit code 5 if one of its quotas has changed since.

    \b
    berth quota revert 17
    """
    with connected() as client:
        made = client.quotas.revert(change)
    show_one(made, output, lambda _: print(f"Change {change} reverted by change {made.id}."))


def _columns() -> list[Column]:
    return [
        Column("CHANGE", lambda c: str(c.id), right=True),
        Column("TIME", lambda c: local(c.at), brief=lambda c: short(c.at)),
        Column("BY", lambda c: c.actor),
        Column("QUOTAS", _quotas),
        Column("COMMENT", _note, grows=True),
    ]


def _quotas(change: "QuotaChange") -> str:
    lines = [quota_line(quota) for quota in change.quotas]
    if change.hidden:
        lines.append(f"{change.hidden} more")
    return "; ".join(lines)


def _note(change: "QuotaChange") -> str:
    undone = f"reverted by {change.reverted_by}" if change.reverted_by else ""
    lapses = change.expires_at is not None and not (change.expired or undone)
    until = f"until {local(change.expires_at)}" if lapses else ""
    return ", ".join(part for part in (change.comment, until, undone) if part)
