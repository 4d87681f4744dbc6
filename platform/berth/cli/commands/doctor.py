"""Command `berth doctor`."""

from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.output import Output, OutputOption, show_list
from berth.cli.text import safe

if TYPE_CHECKING:
    from berth.server.doctor import Check

MARGIN = 24


def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, like -o json.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check what Berth can and cannot do on this machine, and suggest remedies.

    Isolation, limits and images are tested by running pods, which takes a few seconds. Run the command as
    the user that runs Berth or the node's agent. The exit code is 1 if something required is missing.

    \b
    berth doctor
    berth doctor --json
    """
    from berth.server.doctor import Status, examine

    checks = examine()
    if as_json or output.is_data:
        show_list(checks, (), Output.JSON if as_json else output, "")
    else:
        for check in checks:
            _print_check(check)
    if any(check.status is Status.MISSING for check in checks):
        raise typer.Exit(1)


def _print_check(check: "Check") -> None:
    print(f"{check.status:<9}{check.name:<{MARGIN - 9}}{safe(check.finding)}")
    if check.remedy:
        print(f"{'':<{MARGIN}}{safe(check.remedy)}")
