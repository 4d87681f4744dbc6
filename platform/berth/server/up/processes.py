"""Processes of an installation, with their commands and environments."""

import os
import signal
import sys
from ipaddress import ip_address
from pathlib import Path
from socket import socket

from berth.db.embedded.cluster import EmbeddedCluster
from berth.home import CHECKOUT, is_checkout
from berth.parent_bound import parent_bound_command
from berth.server.up.address import socket_url
from berth.server.up.errors import StartupError
from berth.server.up.supervision.child import Child, command_launcher
from berth.server.up.supervision.forks import Forks
from berth.server.up.supervision.orphans import process_identity

WEB_PROCESSES_VARIABLE = "BERTH_WEB_PROCESSES"
WEB_PROCESSES_MAX = 32


def environment(home: Path) -> dict[str, str]:
    values = {**os.environ, "BERTH_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    values.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
    if is_checkout():
        paths = [str(CHECKOUT), str(CHECKOUT / "platform"), values.get("PYTHONPATH", "")]
        values["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return values


def database_child(home: Path, cluster: EmbeddedCluster) -> Child:
    def command() -> list[str]:
        cluster.prepare()
        return cluster.command()

    log = home / "logs" / "postgres.log"
    return Child("database", command_launcher(command, dict(os.environ)), log, stop_signal=signal.SIGINT)


def preloaded_process(home: Path, forks: Forks, listening: socket) -> Child:
    """Return the preloaded process, from which the programs are forked.

    The process and the pods are killed if the supervisor dies. Users choose the URLs of inference engines and
    registries, so forked processes must not connect to Berth's own ports.
    """
    host, port = listening.getsockname()[:2]
    env = environment(home) | {
        "BERTH_ANCHOR": process_identity(),
        "BERTH_LOCAL_URL": os.environ.get("BERTH_LOCAL_URL") or socket_url(listening),
        "BERTH_OWN_PORTS": ",".join(filter(None, [str(port), os.environ.get("BERTH_OWN_PORTS", "")])),
    }
    if ip_address(host).is_loopback:
        # Browsers resolve every name under localhost to their own machine.
        env.setdefault("BERTH_APPS_ORIGIN", f"http://*.localhost:{port}")
    number = forks.inherited.fileno()
    command = [sys.executable, "-m", "berth.server.up.preload", str(number)]
    launch = command_launcher(
        lambda: parent_bound_command(command, death_signal=signal.SIGKILL), env, [number]
    )
    return Child("preload", launch, home / "logs" / "preload.log")


def program_children(home: Path, forks: Forks, listening: socket, web_processes: int) -> list[Child]:
    """Return the processes to fork. All web processes accept requests on the same socket."""
    webs = ["web", *(f"web-{number}" for number in range(2, web_processes + 1))]
    return [
        *(_create_child(home, forks, name) for name in ("scheduler", "tasks", "services")),
        *(_create_child(home, forks, name, listening) for name in webs),
    ]


def web_process_count() -> int:
    """Return the number of web processes. Raises StartupError if the setting is invalid."""
    text = os.environ.get(WEB_PROCESSES_VARIABLE) or "1"
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= WEB_PROCESSES_MAX:
        raise StartupError(
            f"{WEB_PROCESSES_VARIABLE} is {text!r}. Set it to a number of web processes from 1 to "
            f"{WEB_PROCESSES_MAX}."
        )
    return int(text)


def _create_child(home: Path, forks: Forks, name: str, *sockets: socket) -> Child:
    return Child(name, forks.launcher(name, *sockets), home / "logs" / f"{name}.log")
