"""The `berth pool` command, which creates, edits, scales, pauses and drains node pools."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.commands.infrastructure.nodes import format_free_gpus, is_interactive
from berth.cli.commands.infrastructure.pool_fields import format_state, pool_fields
from berth.cli.commands.infrastructure.previews import (
    accept_host_keys,
    confirm_creation,
    confirm_drain,
    format_drain_lines,
    print_drain,
    print_preview,
)
from berth.cli.commands.infrastructure.ssh_hosts import host_app
from berth.cli.options.arguments import PoolArgument, open_client, with_options_from
from berth.cli.options.pools import NewPool, PoolChanges
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import (
    Column,
    Output,
    OutputOption,
    WatchOption,
    show_data,
    show_list,
    show_one,
)
from berth.cli.printing.text import (
    format_age,
    format_number,
    format_pairs,
    format_short_time,
    format_time,
    printable,
    utc_now,
)
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.pools import NodePool

app = typer.Typer(no_args_is_help=True, help="Manage node pools.")
app.add_typer(host_app, name="host")
Name = PoolArgument
# Providers that cannot preview their nodes before the pool exists.
WITHOUT_PREVIEW = (None, "local", "static")
SCALABLE = ("local", "aws")  # providers that start and stop nodes on demand
# Changing these fields can remove nodes.
NODE_COUNT_FIELDS = {"nodes", "nodes_min", "ready_threshold", "nodes_max", "expires_at"}


@app.command("list")
def list_pools(watch: WatchOption = False, output: OutputOption = Output.TABLE) -> None:
    """List node pools.

    \b
    berth pool list --watch
    """
    with open_client() as client:
        print_listing(
            lambda: list(client.node_pools.list()), _pool_columns, output, "No node pools.", watch=watch
        )


@app.command("describe")
def describe(name: Name, output: OutputOption = Output.TABLE) -> None:
    """Show one pool: nodes, free capacity, fragmentation, cost and errors.

    \b
    berth pool describe train
    """
    with open_client() as client:
        pool = client.node_pools.get(name)
        cost, fragmentation = client.node_pools.cost(name), client.node_pools.fragmentation(name)
        blocked_drains = client.node_pools.scaling(name).blocked if pool.disruption_budgets else []
    if output.is_data:
        show_data(
            {**pool.to_dict(), "cost": cost.to_dict(), "fragmentation": fragmentation.to_dict()}, output
        )
        return
    for title, text in (
        *pool_fields(pool, cost, fragmentation),
        *(("Blocked", sentence) for sentence in blocked_drains),
    ):
        print(f"{title + ':':<16}{printable(text)}")


@app.command("create")
@with_options_from(NewPool)
def create(options: NewPool) -> None:
    """Create a pool from options or a file. Options override the file.

    If the provider supports previews, the nodes and any problems are listed first. On a terminal, the command
    then asks for confirmation. Elsewhere, it exits with code 1 if there are errors. With --yes, errors are
    only printed.

    \b
    berth pool create train --nodes 2:16 --gpus-per-node 8 --gpu-model H100 --cpu 64 --memory 512Gi
    berth pool create -f pool.yaml
    berth pool create prod --provider kubernetes --context prod --nodes 8 --gpus-per-node 8 --dry-run
    berth pool create hpc --provider slurm --nodes 0:8 --gpus-per-node 8 --set provider_settings.partition=gpu
    berth pool create metal --provider ssh --hosts hosts.yaml --key ~/.ssh/berth --nodes 4 --gpus-per-node 8
    berth pool create hf --nodes 2 --plugin torch --plugin huggingface:token=@token.txt --pip 'numpy>=2'
    """
    values = options.document()
    name = options.resolve_name(values.pop("name", None))
    with open_client() as client:
        if options.accept_host_keys:
            values = accept_host_keys(
                name, values, lambda part: client.node_pools.preview(name, **part), options.output
            )
        if options.dry_run:
            show_one(client.node_pools.preview(name, **values), options.output, print_preview)
            return
        if values.get("provider") not in WITHOUT_PREVIEW:
            preview = client.node_pools.preview(name, **values)
            confirm_creation(name, preview, options.output, is_confirmed=options.yes)
        created = client.node_pools.create(name, **values)
    show_one(created, options.output, _print_created_pool)


@app.command("edit")
@with_options_from(PoolChanges)
def edit(options: PoolChanges) -> None:
    """Change a pool's settings. Exits with code 5 if the pool was changed concurrently.

    If the maximum is lowered, excess nodes are drained. On a terminal, the command asks for confirmation
    first.

    \b
    berth pool edit train --nodes 2:8 --dry-run
    berth pool edit train --nodes min=2,desired=4,max=16
    berth pool edit train --set drain_timeout=60 --set price_per_gpu_hour=2.49
    berth pool edit train --image-policy require --image-pattern 'ghcr.io/org/*'
    berth pool edit train --node-consolidation when_underutilized --budget nodes=10%
    berth pool edit train --budget 'nodes=0,schedule=0 9 * * mon-fri,duration=8h,zone=Europe/Berlin'
    """
    changes = options.document()
    name = options.resolve_name(changes.pop("name", None))
    options.require_changes(changes)
    with open_client() as client:
        if options.has_individual_settings:
            stored = client.node_pools.get(name).provider_settings or {}
            changes["provider_settings"] = {**stored, **changes["provider_settings"]}
        if options.dry_run:
            show_one(client.node_pools.preview_edit(name, changes), options.output, print_drain)
            return
        if NODE_COUNT_FIELDS & changes.keys() and not options.yes and is_interactive():
            confirm_drain(client.node_pools.preview_edit(name, changes))
        changed = client.node_pools.edit(name, changes)
    show_one(changed, options.output, _print_scaled_pool)


@app.command("environment")
def environment(
    name: Name,
    script: Annotated[bool, typer.Option("--script", help="Print only the boot script.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the environment that a pool's plugins install, and its boot script.

    \b
    berth pool environment train
    berth pool environment train --script > boot.sh
    """
    with open_client() as client:
        image = client.node_pools.environment(name)
    if script:
        print(image.script, end="")
    else:
        show_one(image, output, _print_environment)


@app.command("plugins")
def plugins(output: OutputOption = Output.TABLE) -> None:
    """List the available plugins.

    \b
    berth pool plugins
    """
    columns = [
        Column("NAME", lambda p: p.name),
        Column("SOURCE", lambda p: p.source or "berth"),
        Column("PARAMETERS", lambda p: ", ".join(p.parameters.get("properties", ())) or "-"),
        Column("SUMMARY", lambda p: p.summary, flexible=True),
    ]
    with open_client() as client:
        available = list(client.node_pools.plugins())
    show_list(available, columns, output, "No plugins.")


@app.command("scale")
def scale(
    name: Name,
    nodes: Annotated[int, typer.Argument(help="Desired number of nodes.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the nodes that would be drained, without draining them.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set the desired number of nodes. The autoscaler continues from that number.

    On a terminal, the command first lists the nodes that will be drained and asks for confirmation.

    \b
    berth pool scale train 8
    berth pool scale train 2 --dry-run
    """
    with open_client() as client:
        if dry_run:
            show_one(client.node_pools.scaling(name, nodes), output, print_drain)
            return
        if not yes and is_interactive():
            confirm_drain(client.node_pools.scaling(name, nodes))
        changed = client.node_pools.scale(name, nodes)
    show_one(changed, output, _print_scaled_pool)


def _print_created_pool(pool: Any) -> None:
    name = printable(pool.name)
    print(f"{name}: {format_state(pool)}")
    if not pool.gpus_per_node:
        print(f"Its nodes have no GPUs. To change that, run: berth pool edit {name} --gpus-per-node 8")
    if pool.nodes_max is None and pool.provider in SCALABLE:
        nodes = format_count(pool.nodes_min, "node")
        print(f"It always has {nodes}. To scale it with demand, run: berth pool edit {name} --nodes 0:4")


def _print_scaled_pool(pool: Any) -> None:
    print("\n".join([f"{printable(pool.name)}: {format_state(pool)}", *format_drain_lines(pool)]))


@app.command("pause")
def pause(name: Name, output: OutputOption = Output.TABLE) -> None:
    """Pause a pool: its size does not change until it is resumed.

    \b
    berth pool pause train
    """
    _run_action(output, lambda client: client.node_pools.pause(name))


@app.command("resume")
def resume(name: Name, output: OutputOption = Output.TABLE) -> None:
    """Resume a pool after a pause or a drain.

    \b
    berth pool resume train
    """
    _run_action(output, lambda client: client.node_pools.resume(name))


@app.command("retry")
def retry(name: Name, output: OutputOption = Output.TABLE) -> None:
    """Reset the count of failed boots, and retry provisioning immediately.

    \b
    berth pool retry train
    """
    _run_action(output, lambda client: client.node_pools.retry(name))


@app.command("drain")
def drain(
    name: Name,
    reason: Annotated[str, typer.Option(help="Reason to record in the history.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Drain a pool: its nodes let their pods finish, then terminate and are not replaced.

    \b
    berth pool drain train --reason "moves to another room"
    """
    _run_action(output, lambda client: client.node_pools.drain(name, reason))


@app.command("delete")
def delete(name: Name) -> None:
    """Delete a pool that was never used. Exits with code 5 if the pool has history; drain the pool instead.

    \b
    berth pool delete tryout
    """
    with open_client() as client:
        client.node_pools.delete(name)
    print(f"{printable(name)} deleted")


@app.command("history")
def history(
    name: Name,
    kind: Annotated[str | None, typer.Option(help="Kind of event, for example error.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of events to show. The newest are kept.")
    ] = 50,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the scaling events of a pool, oldest first.

    \b
    berth pool history train --kind error
    """
    columns = [
        Column("TIME", lambda e: format_time(e.at), brief=lambda e: format_short_time(e.at)),
        Column("EVENT", lambda e: e.kind),
        Column("NODE", lambda e: e.node or "-"),
        Column("DESIRED", _format_desired_nodes, right=True),
        Column("REASON", lambda e: e.reason, flexible=True),
        Column("NUMBERS", lambda e: format_pairs(e.data), wide=True, flexible=True),
    ]
    with open_client() as client:
        events = list(client.node_pools.history(name, kind=kind, limit=limit))
    show_list(events[::-1], columns, output, "No scaling events.")


def _run_action(output: Output, act: "Callable[[Client], NodePool]") -> None:
    with open_client() as client:
        changed = act(client)
    show_one(changed, output, lambda pool: print(f"{printable(pool.name)}: {format_state(pool)}"))


def _print_environment(environment: Any) -> None:
    image = environment.image
    fields = [
        ("Digest", environment.digest),
        ("Python", image["python"] or "the node's own"),
        ("Packages", ", ".join(image["pip"])),
        ("Indexes", "; ".join(_format_index(index) for index in image["indexes"])),
        ("Debian", ", ".join(image["apt"])),
        ("Variables", format_pairs(image["env"])),
        ("Secrets", ", ".join(image["secrets"])),
        ("Phases", ", ".join(environment.phases)),
    ]
    for title, text in fields:
        if text:
            print(f"{title + ':':<15}{printable(text)}")


def _format_index(index: Any) -> str:
    return f"{index['url']} for {', '.join(index['packages']) or 'all others'}"


def _format_desired_nodes(event: Any) -> str:
    if event.after is None:
        return "-"
    changed = event.before is not None and event.before != event.after
    return f"{event.before} -> {event.after}" if changed else str(event.after)


def _pool_columns() -> list[Column]:
    return [
        Column("NAME", lambda p: p.name),
        Column("PROVIDER", lambda p: p.provider, optional=True),
        Column("RUNTIME", lambda p: p.runtime, wide=True),
        Column("DESIRED", lambda p: format_number(p.nodes_desired), right=True),
        Column("READY", lambda p: format_number(p.nodes_ready), right=True),
        Column("BOOTING", lambda p: format_number(p.nodes_pending), right=True),
        Column("DRAINING", lambda p: format_number(p.nodes_draining), right=True),
        Column("MIN", lambda p: format_number(p.nodes_min), right=True, optional=True),
        Column(
            "MAX",
            lambda p: format_number(p.nodes_min if p.nodes_max is None else p.nodes_max),
            right=True,
            optional=True,
        ),
        Column("FREE GPUS", format_free_gpus, right=True),
        Column("STATE", lambda p: p.state),
        Column("PRICE", lambda p: format_number(p.current_price), right=True, wide=True),
        Column(
            "EXPIRES IN",
            lambda p: format_age(utc_now(), p.expires_at) if p.expires_at else "-",
            right=True,
            wide=True,
        ),
        Column("LAST ERROR", lambda p: p.last_error or "-", wide=True, flexible=True),
    ]
