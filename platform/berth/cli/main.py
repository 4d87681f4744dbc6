"""The `berth` command. The modules of subcommands are imported on demand."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info, get_group_from_info
from typer.models import CommandInfo, TyperInfo

from berth.cli.exits import EXIT_CODES_HELP, ExitCode, explain_error
from berth.cli.options.arguments import context_names
from berth.cli.printing.text import add_full_stop, print_message
from berth.core.problems import SUGGESTION, closest_match

WORKLOAD_COMMANDS: Mapping[str, str] = {
    "submit": "workloads.submit:submit",
    "list": "workloads.listing:list_workloads",
    "describe": "workloads.listing:describe",
    "edit": "workloads.edit:edit",
    "why": "workloads.listing:why",
    "logs": "pods.logs:logs",
    "exec": "pods.exec:exec_",
    "cp": "pods.copy:cp",
    "port-forward": "pods.port_forward:port_forward",
    "ssh": "pods.ssh:ssh",
    "metrics": "pods.metrics:metrics",
    "open": "workloads.listing:open_port",
    "cancel": "workloads.control:cancel",
    "retry": "workloads.control:retry",
    "resubmit": "workloads.control:resubmit",
    "suspend": "workloads.control:suspend",
    "resume": "workloads.control:resume",
    "delete": "workloads.control:delete",
    "events": "scheduling.history:events",
}
# Prevent httpx from importing its own CLI, which would load rich, click and pygments.
sys.modules.setdefault("httpx._main", cast("Any", None))
NEGATIVE_NUMBER = re.compile(r"-\d[\d.]*")
Target = str | typer.Typer  # MODULE:ATTRIBUTE in berth.cli.commands, or the command group itself


class LazyCommands(Mapping[str, Any]):
    """Mapping from names to commands. Looking up a command imports its module."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load_command(name, self._targets[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)


def _load_command(name: str, target: Target) -> Any:
    value: Any = target
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        value = getattr(import_module(f"berth.cli.commands.{module}"), attribute)
    if not isinstance(value, typer.Typer):
        info = CommandInfo(name=name, callback=value)
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    return get_group_from_info(
        TyperInfo(value, name=name),
        pretty_exceptions_short=False,
        suggest_commands=True,
        rich_markup_mode=None,
    )


class WorkloadGroup(TyperGroup):
    """The `berth workload` group, which repeats the top-level workload commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", LazyCommands(WORKLOAD_COMMANDS))


workload_app = typer.Typer(
    cls=WorkloadGroup,
    no_args_is_help=True,
    help="Manage workloads. Each command is an alias of the top-level command with the same name.",
)
COMMANDS: Mapping[str, Target] = {
    **WORKLOAD_COMMANDS,
    "top": "scheduling.top:top",
    "queue": "scheduling.queue:queue",
    "share": "scheduling.queue:share",
    "evictions": "scheduling.history:evictions",
    "cycles": "scheduling.queue:cycles",
    "replay": "scheduling.queue:replay",
    "audit": "scheduling.history:audit",
    "health": "scheduling.history:health",
    "login": "accounts.signing:login",
    "logout": "accounts.signing:logout",
    "whoami": "accounts.signing:whoami",
    "password": "accounts.signing:password",
    "simulate": "local.simulate:simulate",
    "trace": "local.simulate:trace",
    "doctor": "local.doctor:doctor",
    "up": "local.server:up",
    "help": "local.help:help_",
    "completion": "local.help:completion",
    "version": "local.server:version",
    "workload": workload_app,
    "outputs": "pods.outputs:app",
    "files": "pods.files:app",
    "template": "workloads.templates:app",
    "schedule": "workloads.schedules:app",
    "quota": "quotas.quota:app",
    "usage": "quotas.usage:usage_app",
    "budget": "quotas.usage:budget_app",
    "department": "accounts.tenants:department_app",
    "project": "accounts.tenants:project_app",
    "secret": "accounts.secrets:app",
    "member": "accounts.access:member_app",
    "user": "accounts.access:user_app",
    "service": "services.service:app",
    "pool": "infrastructure.pools:app",
    "node": "infrastructure.nodes:node_app",
    "machine": "infrastructure.machines:machine_app",
    "subscription": "accounts.subscriptions:app",
    "token": "accounts.access:token_app",
    "context": "accounts.signing:context_app",
    "admin": "local.server:admin_app",
}


class RootGroup(TyperGroup):
    """Root command group, which prints errors to stderr without a traceback and sets the exit code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", LazyCommands(COMMANDS))

    def make_context(self, *args: Any, **attributes: Any) -> Any:
        try:
            return super().make_context(*args, **attributes)
        except typer.TyperException as error:
            error.message = add_full_stop(error.message)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except typer.TyperException as error:
            option = str(getattr(error, "option_name", ""))
            if not NEGATIVE_NUMBER.fullmatch(option):
                error.message = add_full_stop(_reword_typer_message(error.message))
                raise
            print_message(f"{option} is negative. Use a positive number.")
            raise typer.Exit(ExitCode.USAGE) from None
        except Exception as error:
            explanation = explain_error(error)
            if explanation is None:
                raise
            code, lines = explanation
            for line in lines:
                print_message(line)
            raise typer.Exit(code) from None


app = typer.Typer(
    cls=RootGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _reword_typer_message(message: str) -> str:
    message = message.replace("Value error, ", "")
    value, is_choice, choices = message.partition(" is not one of ")
    allowed = [choice.strip(" '.") for choice in choices.split(",")]
    nearest = closest_match(value.rpartition(" ")[2].strip("'"), allowed) if is_choice else ""
    return f"{message} {SUGGESTION}`{nearest}`?" if nearest else message


def _print_version(requested: bool) -> None:
    if requested:
        from berth.cli.commands.local.server import version_line

        print(version_line())
        raise typer.Exit


@app.callback()
def berth(
    ctx: typer.Context,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Context to use; see `berth context list`.", autocompletion=context_names
        ),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Berth shares GPUs between departments and projects by quota and fair share.

    \b
    berth login https://berth.example.org
    berth submit -n train -p vision --gpu 1 -- python train.py
    berth list --watch
    berth why vision/train

    See also: berth help exit-codes, berth help environment, berth help output.
    """
    if context is None:
        return
    previous = os.environ.get("BERTH_CONTEXT")
    os.environ["BERTH_CONTEXT"] = context
    ctx.call_on_close(lambda: _restore_context(previous))


def _restore_context(previous: str | None) -> None:
    if previous is None:
        os.environ.pop("BERTH_CONTEXT", None)
    else:
        os.environ["BERTH_CONTEXT"] = previous


if __name__ == "__main__":
    app()
