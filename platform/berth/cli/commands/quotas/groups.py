"""The `berth quota group` command, which manages groups of pools that share quotas."""

from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.options.arguments import open_client, pool_names, quota_group_names
from berth.cli.printing.impact import preview_exit_code, print_group_impact, report_preview_errors
from berth.cli.printing.output import Column, Output, OutputOption, show_list, show_one

if TYPE_CHECKING:
    from berth.client.models.tenants import QuotaGroup

app = typer.Typer(
    no_args_is_help=True,
    help="Manage quota groups: pools with the same GPU model that share quotas.",
)
GroupArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Quota group name.", autocompletion=quota_group_names)
]
PoolsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="POOL...",
        help="All pools of the group.",
        autocompletion=pool_names,
    ),
]


@app.command("list")
def list_groups(output: OutputOption = Output.TABLE) -> None:
    """List the quota groups with their pools.

    \b
    berth quota group list
    """
    with open_client() as client:
        groups = list(client.quota_groups.list())
    show_list(
        groups, _columns(), output, "No quota groups. Create one with `berth quota group create NAME POOL`."
    )


@app.command("create")
def create_group(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name: lowercase letters, digits and hyphens.")],
    pools: PoolsArgument,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a quota group. Set quotas for the group as you would for a pool.

    \b
    berth quota group create h100 metal hosts cloud
    berth quota set vision --pool h100 --gpu 64
    """
    with open_client() as client:
        created = client.quota_groups.create(name, pools)
    show_one(created, output, lambda group: print(f"Quota group {group.name} created."))


@app.command("edit")
def edit_group(*, name: GroupArgument, pools: PoolsArgument, output: OutputOption = Output.TABLE) -> None:
    """Replace the pools of a quota group. Exits with code 5 if the group was changed concurrently.

    \b
    berth quota group edit h100 metal cloud
    """
    with open_client() as client:
        edited = client.quota_groups.edit(name, pools)
    show_one(edited, output, lambda group: print(f"Quota group {group.name}: {_format_pools(group)}"))


@app.command("preview")
def preview_group(*, name: GroupArgument, pools: PoolsArgument, output: OutputOption = Output.TABLE) -> None:
    """Preview a change to a quota group's pools. Exit codes are the same as for `berth quota preview`.

    \b
    berth quota group preview h100 metal cloud
    """
    with report_preview_errors(), open_client() as client:
        impact = client.quota_groups.preview(name, pools)
    show_one(impact, output, lambda _: print_group_impact(impact))
    raise typer.Exit(preview_exit_code(impact))


@app.command("delete")
def delete_group(name: GroupArgument) -> None:
    """Delete a quota group. Exits with code 5 if it still has quotas.

    \b
    berth quota group delete h100
    """
    with open_client() as client:
        client.quota_groups.delete(name)
    print(f"Quota group {name} deleted.")


def _columns() -> list[Column]:
    return [Column("NAME", lambda group: group.name), Column("POOLS", _format_pools, flexible=True)]


def _format_pools(group: "QuotaGroup") -> str:
    return ", ".join(group.pools)
