"""Preview the effects of creating or shrinking a pool, and prompt for confirmation."""

import sys
from typing import TYPE_CHECKING, Any

import typer

from berth.cli.commands.infrastructure.nodes import is_interactive
from berth.cli.exits import ExitCode
from berth.cli.options.ssh_hosts import pin_presented_keys
from berth.cli.printing.output import Column, Output, print_items
from berth.cli.printing.text import format_number, printable
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from berth.client.models.pools import PoolPreview

COLUMNS = [
    Column("NODE", lambda n: n.name),
    Column("GPUS", lambda n: format_number(n.total.gpu), right=True),
    Column("FREE", lambda n: format_number(n.free.gpu), right=True),
    Column("MODEL", lambda n: n.gpu_model or "-"),
    Column("CORES", lambda n: format_number(n.total.cpu), right=True, optional=True),
    Column("MEMORY", lambda n: f"{n.total.memory_mib:,} MiB", right=True, optional=True),
    Column("USED BY", lambda n: n.details or "-", flexible=True),
    Column("LEFT OUT", lambda n: n.obstacle or "-", flexible=True),
]


def print_preview(preview: "PoolPreview") -> None:
    if not (preview.source or preview.findings):
        print("This provider does not support previews.")
        return
    if preview.source:
        print(printable(preview.source))
    if preview.nodes:
        print_items(preview.nodes, COLUMNS)
        hidden = preview.nodes_total - len(preview.nodes)
        if hidden:
            print(f"and {format_count(hidden, 'more node')}")
        print(_node_summary(preview))
    for finding in preview.findings:
        print(_format_finding(finding))


def confirm_creation(
    name: str, preview: "PoolPreview", output: Output, *, is_confirmed: bool = False
) -> None:
    """Print the preview unless it is empty, and prompt for confirmation.

    Exit if the user declines. If no prompt is possible, exit if the preview has errors. If the output is
    machine-readable, show only errors, on stderr. With `is_confirmed`, never prompt or exit.
    """
    if not (preview.source or preview.findings):
        return
    errors = [finding for finding in preview.findings if finding.severity == "error"]
    if is_confirmed:
        for finding in errors:
            print(_format_finding(finding), file=sys.stderr)
        return
    if output.is_data:
        for finding in errors:
            print(_format_finding(finding), file=sys.stderr)
    else:
        print_preview(preview)
    if is_interactive() and not output.is_data:
        typer.confirm(f"Create pool {printable(name)}?", default=not errors, abort=True)
    elif errors:
        print(
            f"Pool {printable(name)} was not created. Fix the errors, or pass --yes to create it anyway.",
            file=sys.stderr,
        )
        raise typer.Exit(ExitCode.REJECTED)


def accept_host_keys(
    name: str, values: dict[str, Any], preview: "Callable[[dict[str, Any]], PoolPreview]", output: Output
) -> dict[str, Any]:
    """Pin the presented host keys in the pool's values, and print their fingerprints. Return the values."""
    pinned, lines = pin_presented_keys(values, preview)
    print(
        "\n".join(
            [f"Host keys of pool {printable(name)} to pin:", *lines] if lines else ["No host keys to pin."]
        ),
        file=sys.stderr if output.is_data else sys.stdout,
    )
    return pinned


def _format_finding(finding: Any) -> str:
    return printable(f"{finding.severity}: {finding.message} {finding.remedy}".rstrip())


def _node_summary(preview: Any) -> str:
    total = format_count(preview.nodes_total, "node")
    return (
        f"{preview.nodes_usable:,} of {total} can be used: {format_number(preview.total.gpu)} GPUs, "
        f"{format_number(preview.free.gpu)} of them free."
    )


def confirm_drain(scaling: Any) -> None:
    if scaling.draining:
        print_drain(scaling)
        typer.confirm("Continue?", abort=True, err=True)


def print_drain(scaling: Any) -> None:
    print("\n".join(format_drain_lines(scaling)) or "No nodes would be drained.")


def format_drain_lines(scaling: Any) -> list[str]:
    lines = []
    for node in scaling.draining:
        runs = "; ".join(node.work or ()) or (format_count(node.pods, "pod") if node.pods else "no workloads")
        lines.append(f"  drain {printable(node.node)}: {printable(runs)}")
        if node.blocked_by:
            lines[-1] += f" (blocked by a disruption budget: {printable(node.blocked_by)})"
    more = scaling.draining_count - len(scaling.draining)
    return [*lines, f"  drain {format_count(more, 'more node')}"] if more > 0 else lines
