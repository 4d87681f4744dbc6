"""The `berth quota` command, which shows, sets, previews, applies and reverts quotas."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from berth.cli.commands.quotas import groups
from berth.cli.documents.files import REMOVE_FORM, SET_FORM, build_quota_draft
from berth.cli.exits import ExitCode, InvalidInput
from berth.cli.options.arguments import (
    OwnerArgument,
    PlaceOption,
    open_client,
    owner_names,
    pool_and_group_names,
)
from berth.cli.options.quantities import parse_future_timestamp, parse_number, parse_number_or_unlimited
from berth.cli.printing.explain import print_shares
from berth.cli.printing.following import print_listing
from berth.cli.printing.impact import (
    format_quota_line,
    preview_exit_code,
    print_impact,
    quota_owner_and_pool,
    report_preview_errors,
)
from berth.cli.printing.output import Column, Output, OutputOption, WatchOption, show_list, show_one
from berth.cli.printing.quota_table import check_owner, quota_columns, quota_rows
from berth.cli.printing.text import format_short_time, format_time, print_message, utc_now

if TYPE_CHECKING:
    from berth.client.models.tenants import QuotaChange

app = typer.Typer(
    no_args_is_help=True,
    help="Manage quotas: the resources guaranteed to departments and projects in node pools.",
)
app.add_typer(groups.app, name="group")
Amount = str | None


@app.command("show")
def show(
    owner: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Department or project to show.", autocompletion=owner_names),
    ] = None,
    pool: PlaceOption = None,
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
        _show_share_traces(owner, pool, output)
        return
    with open_client() as client:
        print_listing(
            lambda: quota_rows(client, pool, output, owner), quota_columns, output, "No quotas.", watch=watch
        )


def _show_share_traces(owner: str | None, pool: str | None, output: Output) -> None:
    if owner is None:
        raise InvalidInput("quota show --why requires an owner. Specify a project or a department.")
    with open_client() as client:
        quotas = [quota for quota in client.quotas.list(pool=pool) if quota.owner.name == owner]
        if not quotas:
            projects = {project.name for project in client.projects.list()}
            check_owner(owner, projects | {department.name for department in client.departments.list()})
            place = "" if pool is None else f" in {pool}"
            raise InvalidInput(
                f"{owner} has no quota{place} that you can see. List quotas with `berth quota show`."
            )
        traces = [
            client.quotas.explain_share(
                "project" if quota.owner.kind == "project" else "department", owner, name
            )
            for quota in quotas
            for name in quota.pools or [quota.pool]
        ]
    show_one(traces if len(traces) > 1 else traces[0], output, lambda _: print_shares(traces))


@app.command("set")
def set_quota(
    *,
    owner: OwnerArgument,
    pool: Annotated[str, typer.Option(help="Node pool or quota group.", autocompletion=pool_and_group_names)],
    department: Annotated[bool, typer.Option("--department", help="Treat NAME as a department.")] = False,
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
        Amount, typer.Option(metavar="NUMBER", help="Weight for sharing over-quota capacity.")
    ] = None,
    over_quota: Annotated[bool | None, typer.Option(help="Allow allocations over quota.")] = None,
    rank: Annotated[
        Amount, typer.Option(metavar="NUMBER|owner", help="Rank. Higher ranks are served first.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create or change a quota. Exits with code 5 if the quota was changed concurrently.

    \b
    berth quota set vision --pool local --gpu 8 --gpu-limit 12 --weight 2
    berth quota set research --department --pool local --gpu unlimited
    berth quota set vision --pool h100 --gpu 64     # for all pools of the quota group h100
    """
    guaranteed = {"gpu": gpu, "cpu": cpu, "memory": memory}
    limits = {"gpu": gpu_limit, "cpu": cpu_limit, "memory": memory_limit}
    changes: dict[str, Any] = _parse_amounts(guaranteed, "")
    if limit := _parse_amounts(limits, "-limit"):
        changes["limit"] = limit
    if weight is not None:
        changes["weight"] = parse_number("--weight", weight)
    if over_quota is not None:
        changes["over_quota"] = over_quota
    if rank is not None:
        changes["rank"] = None if rank == "owner" else parse_number("--rank", rank)
    if not changes:
        raise InvalidInput("quota set: specify at least one value to set, for example --gpu 8 or --weight 2")
    _save_quota("department" if department else "project", owner, pool, changes, output)


def _save_quota(
    kind: Literal["department", "project"], owner: str, pool: str, changes: dict[str, Any], output: Output
) -> None:
    from berth.client import NotFound

    with open_client() as client:
        try:
            client.quotas.get(kind, owner, pool)
        except NotFound:
            stored = client.quotas.create(kind, owner, pool, changes)
        else:
            stored = client.quotas.edit(kind, owner, pool, changes)

    def describe(_: object) -> None:
        changed = {*changes, *(f"limit.{name}" for name in changes.get("limit", ()))}
        show_list([stored], quota_columns(changed), output, "")
        if stored.status is None and not any((stored.pools or {}).values()):
            print_message("the fair share is computed in the next scheduling cycle")

    show_one(stored, output, describe)
    for warning in stored.warnings:
        print_message(f"warning: {warning.message}")


def _parse_amounts(options: dict[str, str | None], suffix: str) -> dict[str, Any]:
    return {
        "memory_mib" if name == "memory" else name: parse_number_or_unlimited(f"--{name}{suffix}", text)
        for name, text in options.items()
        if text is not None
    }


FileOption = Annotated[
    str | None, typer.Option("--file", "-f", help="YAML or JSON file with `changes:` (`-` for stdin).")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar=SET_FORM, help="Value to set; repeatable.")
]
RemoveOption = Annotated[
    list[str] | None, typer.Option("--remove", metavar=REMOVE_FORM, help="Quota to remove; repeatable.")
]
CommentOption = Annotated[str | None, typer.Option(help="Reason for the change.")]


@app.command("preview")
def preview(
    *,
    file: FileOption = None,
    sets: SetOption = None,
    removals: RemoveOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Preview quota changes. Exits with code 0 if there are no effects, 1 if there are, and 255 on errors.

    \b
    berth quota preview --set research/vision:local.gpu=8 --set research:local.gpu=16
    berth quota preview -f quotas.yaml
    """
    with report_preview_errors(), open_client() as client:
        impact = client.quotas.preview(build_quota_draft(client, file, sets or (), removals or (), None))
    show_one(impact, output, lambda _: print_impact(impact))
    raise typer.Exit(preview_exit_code(impact))


@app.command("apply")
def apply(
    *,
    file: FileOption = None,
    sets: SetOption = None,
    removals: RemoveOption = None,
    comment: CommentOption = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="Expiry: a duration such as 3d, or a timestamp. Expired changes are reverted within a "
            "minute.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Preview quota changes, then apply all or none. Exits with code 5 if a quota was changed concurrently.

    \b
    berth quota apply --set research/vision:local.gpu=8 --comment "vision grows"
    berth quota apply -f quotas.yaml --yes
    berth quota apply --set research/vision:local.gpu=16 --for 3d
    """
    with open_client() as client:
        draft = build_quota_draft(client, file, sets or (), removals or (), comment)
        if expires is not None:
            draft["expires_at"] = parse_future_timestamp("--for", expires, utc_now())
        impact = client.quotas.preview(draft)
        if not yes:
            if not output.is_data:
                print_impact(impact)
            if not typer.confirm("Apply these changes?", err=True):
                raise typer.Exit(ExitCode.REJECTED)
        result = client.quotas.apply(draft, impact.tag)
    missing = [quota for quota in impact.quotas if quota.before is None and quota.after is None]
    for quota in missing:
        print_message(f"{quota_owner_and_pool(quota)}: there was no quota to remove")
    if result is None:
        detail = "" if missing else ": all quotas already have these values"
        print_message(f"nothing changed{detail}")
        return
    change = result
    show_one(change, output, lambda _: print(f"Change {change.id} applied."))


@app.command("history")
def history(
    *,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to show, newest first.")] = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """List quota changes and reverts, newest first.

    \b
    berth quota history --limit 5
    """
    with open_client() as client:
        changes = list(client.quotas.changes(limit=limit))
    show_list(changes, _change_columns(), output, "No entries.")


@app.command("revert")
def revert(
    *,
    change: Annotated[
        int, typer.Argument(metavar="CHANGE", help="Change number; see `berth quota history`.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Revert a quota change. Exits with code 5 if one of these quotas has been changed again.

    \b
    berth quota revert 17
    """
    with open_client() as client:
        result = client.quotas.revert(change)
    show_one(result, output, lambda _: print(f"Change {change} reverted by change {result.id}."))


def _change_columns() -> list[Column]:
    return [
        Column("CHANGE", lambda c: str(c.id), right=True),
        Column("TIME", lambda c: format_time(c.at), brief=lambda c: format_short_time(c.at)),
        Column("BY", lambda c: c.actor),
        Column("QUOTAS", _format_quotas),
        Column("COMMENT", _format_note, flexible=True),
    ]


def _format_quotas(change: "QuotaChange") -> str:
    lines = [format_quota_line(quota) for quota in change.quotas]
    if change.hidden:
        lines.append(f"{change.hidden} more")
    return "; ".join(lines)


def _format_note(change: "QuotaChange") -> str:
    reverted = f"reverted by {change.reverted_by}" if change.reverted_by else ""
    superseded = f"superseded by {change.superseded_by}" if change.superseded_by and not reverted else ""
    expires = change.expires_at is not None and not (change.expired or reverted)
    until = f"until {format_time(change.expires_at)}" if expires else ""
    return ", ".join(part for part in (change.comment, until, reverted, superseded) if part)
