"""`berth help` and `berth completion`."""

from enum import StrEnum
from typing import Annotated

import typer

from berth.cli.exits import MEANINGS, BadInput

ENVIRONMENT = """\b
Environment:
  BERTH_URL        address of the server, such as https://berth.example.org
  BERTH_TOKEN      token to show it; goes before the one that `berth login` stored
  BERTH_PROJECT    project to use when none is named
  BERTH_CONTEXT    which stored server is meant, as --context says for one command
  BERTH_CONFIG     where `berth login` stores; default: ~/.config/berth/config.toml
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY    by which way to go to servers elsewhere
  SSL_CERT_FILE    certificates by which a server of your own is known
  NO_COLOR         any value: no colours
  COLUMNS          how wide tables may be on a terminal"""
OUTPUT = """\b
Output:
  -o table    as much as the terminal has room for; whole lines where output goes to a program
  -o wide     every column, and whole
  -o json     what the server said
  -o yaml     the same as YAML
  -o csv      the same as CSV: a row for each item, `outer.inner` for what lies deeper
Answers go to stdout, remarks and errors to stderr, an error on one line that begins with `berth: `."""
TOPICS = {"exit-codes": MEANINGS, "environment": ENVIRONMENT, "output": OUTPUT}


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def help_(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND|TOPIC]...", help=", ".join(TOPICS) + ", or a command."),
    ] = None,
) -> None:
    """Explain a command, or what holds for all of them: exit-codes, environment, output.

    \b
    berth help quota preview
    berth help exit-codes
    """
    root = ctx.find_root()
    if words and len(words) == 1 and words[0] in TOPICS:
        print(TOPICS[words[0]].replace("\b\n", ""))
        return
    at = root
    for place, word in enumerate(words or ()):
        known = getattr(at.command, "commands", {})
        if word not in known:
            asked, allowed = " ".join((words or [])[: place + 1]), [*known, *([] if place else TOPICS)]
            raise BadInput(f"help: given {asked!r}; allowed: {', '.join(allowed)}")
        at = type(at)(known[word], info_name=word, parent=at)
    print(at.command.get_help(at))


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Which shell.")],
) -> None:
    """Print what makes a shell complete commands, options and names of what the server has.

    \b
    berth completion bash > ~/.local/share/bash-completion/completions/berth
    berth completion zsh > "${fpath[1]}/_berth"
    berth completion fish > ~/.config/fish/completions/berth.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="berth", complete_var="_BERTH_COMPLETE", shell=shell.value))
