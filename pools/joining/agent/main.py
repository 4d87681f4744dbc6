"""Command line of the agent."""

from __future__ import annotations

import argparse
import getpass
import os
import sys

from .allocation import JobEnding
from .managers import REJECTED, CannotInstall, systemd_unit
from .run import run
from .server import MachineRejected, Server, is_safe
from .service import install, load_environment_file, uninstall
from .state import load_secret
from .version import VERSION

USAGE = """
  sudo BERTH_JOIN_TOKEN=join_... python3 berth-agent install --url https://berth.example.org --pool metal
  sudo python3 berth-agent uninstall
"""


def main() -> int:
    arguments = _parser().parse_args()
    for name, option in (("BERTH_URL", "url"), ("BERTH_POOL", "pool")):
        if hasattr(arguments, option):
            os.environ[name] = getattr(arguments, option)
    if not os.environ.get("BERTH_URL"):
        load_environment_file()  # an installed agent reads its settings from a file
    if arguments.command in ("unit", "version"):
        print(systemd_unit() if arguments.command == "unit" else VERSION + "\n", end="")
        return 0
    url, pool = os.environ.get("BERTH_URL", ""), os.environ.get("BERTH_POOL", "")
    problem = _settings_problem(url, pool, arguments.command)
    if problem:
        print("berth-agent: %s" % problem, file=sys.stderr)
        return 2
    try:
        return _run_command(arguments, Server(url), pool)
    except MachineRejected as rejection:
        print("rejected: %s" % rejection, file=sys.stderr)
        return REJECTED
    except JobEnding as end:
        print("ended: %s" % end, file=sys.stderr)
        return 0
    except (CannotInstall, ValueError) as error:
        print("berth-agent: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run_command(arguments: argparse.Namespace, server: Server, pool: str) -> int:
    if arguments.command == "install":
        if not load_secret() and not os.environ.get("BERTH_JOIN_TOKEN") and sys.stdin.isatty():
            os.environ["BERTH_JOIN_TOKEN"] = getpass.getpass("Join token: ")
        note = install(
            server, pool, join_later=arguments.join_later, rejoin=arguments.rejoin,
            detached=arguments.detached,
        )  # fmt: skip
        print(note)
    elif arguments.command == "uninstall":
        note = uninstall(server, force=arguments.force)
        print(note or "The machine has left its pool, and the agent is uninstalled.")
    else:
        run(server, pool)
    return 0


def _settings_problem(url: str, pool: str, command: str) -> str:
    if command == "uninstall" and not url:
        return ""
    if not url:
        return "No server URL is set. Set --url or BERTH_URL, for example https://berth.example.org"
    if not is_safe(url):
        return "The URL %s is not https:// (BERTH_PLAIN_HTTP=1 allows plain HTTP)" % url
    if not pool and not load_secret():
        return "No pool is set. Set --pool or BERTH_POOL"
    return ""


def _parser() -> argparse.ArgumentParser:
    server = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    server.add_argument("--url", help="URL of the server. Defaults to $BERTH_URL.")
    server.add_argument("--pool", help="Pool to join. Defaults to $BERTH_POOL.")
    parser = argparse.ArgumentParser(
        prog="berth-agent", description="Join this machine to a Berth pool.", epilog="examples:" + USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter, parents=[server],
    )  # fmt: skip
    parser.set_defaults(command="run")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, text in (
        ("install", "Join the pool, and start the agent now and whenever the machine boots."),
        ("uninstall", "Leave the pool, and delete the agent with its service and files."),
        ("run", "Run in the foreground, for other service managers (default)."),
        ("unit", "Print the systemd unit."),
        ("version", "Print the agent's version."),
    ):
        command = commands.add_parser(name, help=text, description=text, parents=[server])
        command.set_defaults(command=name)
        if name == "install":
            command.add_argument(
                "--join-later",
                action="store_true",
                help="Store the token on disk, so that the service joins when it starts.",
            )
            command.add_argument(
                "--rejoin", action="store_true", help="Join again if the agent is already installed."
            )
            command.add_argument(
                "--detached",
                action="store_true",
                help="Run in the background, for machines without systemd. The agent does not start at boot.",
            )
        if name == "uninstall":
            command.add_argument("--force", action="store_true", help="Stop this machine's pods.")
    return parser
