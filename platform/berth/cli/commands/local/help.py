"""The `berth help` and `berth completion` commands."""

from typing import Annotated

import typer

from berth.cli.exits import EXIT_CODES_HELP, InvalidInput, unknown_name_message
from berth.core.backports import StrEnum

ENVIRONMENT_HELP = """\b
Environment:
  BERTH_URL        server address, such as https://berth.example.org
  BERTH_TOKEN      token that overrides the token stored by `berth login`
  BERTH_PROJECT    default project
  BERTH_CONTEXT    stored server to use, like --context
  BERTH_CONFIG     settings file, by default ~/.config/berth/config.toml
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY    proxies for servers on other machines
  SSL_CERT_FILE    certificates to trust
  NO_COLOR         any value disables colours
  COLUMNS          width of tables on a terminal"""
OUTPUT_HELP = """\b
Output:
  -o table    columns that fit the terminal; full lines if output is redirected
  -o wide     all columns at full width
  -o json     the server's response
  -o yaml     the same as YAML
  -o csv      the same as CSV: one row per item, nested fields as `outer.inner`
Results go to stdout, hints and errors to stderr. An error is one line starting with `berth: `."""
TOPICS = {"exit-codes": EXIT_CODES_HELP, "environment": ENVIRONMENT_HELP, "output": OUTPUT_HELP}


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def help_(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND|TOPIC]...", help="Command, or one of the topics " + ", ".join(TOPICS) + "."
        ),
    ] = None,
) -> None:
    """Show help for a command or a topic: exit-codes, environment, output.

    \b
    berth help quota preview
    berth help exit-codes
    """
    names = words or []
    if len(names) == 1 and names[0] in TOPICS:
        print(TOPICS[names[0]].replace("\b\n", ""))
        return
    context = ctx.find_root()
    for depth, name in enumerate(names):
        commands = getattr(context.command, "commands", {})
        if name not in commands:
            allowed = [*commands, *([] if depth else TOPICS)]
            raise InvalidInput(unknown_name_message("command", " ".join(names[: depth + 1]), name, allowed))
        context = type(context)(commands[name], info_name=name, parent=context)
    print(context.command.get_help(context))


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Shell to print the script for.")],
) -> None:
    """Print a shell completion script for commands, options and the names of objects on the server.

    \b
    berth completion bash > ~/.local/share/bash-completion/completions/berth
    berth completion zsh > "${fpath[1]}/_berth"
    berth completion fish > ~/.config/fish/completions/berth.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="berth", complete_var="_BERTH_COMPLETE", shell=shell.value))
