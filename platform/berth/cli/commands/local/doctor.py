"""The `berth doctor` command, which checks a node pool or this machine."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from berth.cli.options.arguments import open_client
from berth.cli.printing.output import Output, OutputOption, show_list
from berth.cli.printing.text import printable

STATUS_WIDTH, NAME_WIDTH = 9, 15
PoolArgument = Annotated[
    str | None,
    typer.Argument(metavar="[POOL]", help="Node pool to check. By default, this machine is checked."),
]


def doctor(
    pool: PoolArgument = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (same as -o json).")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Diagnose a node pool or this machine, and suggest fixes.

    For a pool, errors are listed first, then warnings and notes. The exit code is 1 if there is an error.

    On this machine, isolation, limits and images are tested by running pods, which takes a few seconds. Run
    the command as the user that runs Berth or the node's agent. The exit code is 1 if something required is
    missing.

    \b
    berth doctor
    berth doctor --json
    berth doctor train
    """
    chosen = Output.JSON if as_json else output
    failed = _examine_machine(chosen) if pool is None else _examine_pool(pool, chosen)
    if failed:
        raise typer.Exit(1)


def _examine_machine(output: Output) -> bool:
    """Check this machine and print the results. Return whether any requirement is not met."""
    from berth.server.doctor import CheckStatus, examine

    checks = examine()
    _show_checks(checks, output, "", lambda check: (check.status, check.name))
    return any(check.status is CheckStatus.MISSING for check in checks)


def _examine_pool(name: str, output: Output) -> bool:
    """Print a pool's problems. Return whether any of them is an error."""
    with open_client() as client:
        findings = client.node_pools.diagnosis(name).findings
    _show_checks(
        findings, output, f"No problems found in pool {name}.", lambda entry: (entry.severity, entry.name)
    )
    return any(entry.severity == "error" for entry in findings)


def _show_checks(
    entries: Sequence[Any], output: Output, empty_message: str, labels: Callable[[Any], tuple[str, str]]
) -> None:
    if output.is_data or not entries:
        show_list(entries, (), output, empty_message)
        return
    width = max(NAME_WIDTH, *(len(labels(entry)[1]) + 2 for entry in entries))
    for entry in entries:
        status, name = labels(entry)
        print(f"{status:<{STATUS_WIDTH}}{name:<{width}}{printable(entry.finding)}")
        if entry.remedy:
            print(f"{'':<{STATUS_WIDTH + width}}{printable(entry.remedy)}")
