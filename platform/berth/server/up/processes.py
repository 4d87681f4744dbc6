"""Processes of an installation, with their commands and environments."""

import os
import signal
import sys
from ipaddress import ip_address
from pathlib import Path
from socket import socket

from berth.db.embedded import EmbeddedCluster
from berth.home import CHECKOUT, is_checkout
from berth.server.up.child import Child
from berth.server.up.orphans import process_identity
from berth.tied import tie_to_parent


def environment(home: Path) -> dict[str, str]:
    values = {**os.environ, "BERTH_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    values.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
    if is_checkout():
        paths = [str(CHECKOUT), str(CHECKOUT / "platform"), values.get("PYTHONPATH", "")]
        values["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return values


def database(home: Path, cluster: EmbeddedCluster) -> Child:
    def command() -> list[str]:
        cluster.prepare()
        return cluster.command()

    log = home / "logs" / "postgres.log"
    return Child("database", command, dict(os.environ), log, stop_signal=signal.SIGINT)


def web(home: Path, listening: socket, start_pipe: int) -> Child:
    """Return the web process, which accepts requests once the pipe `start_pipe` is closed."""
    number = listening.fileno()
    host, port = listening.getsockname()[:2]
    extra = {"BERTH_OWN_PORTS": _own_ports(port)}
    if ip_address(host).is_loopback:
        # Browsers resolve every name under localhost to their own machine.
        extra["BERTH_APPS_ORIGIN"] = os.environ.get("BERTH_APPS_ORIGIN", f"http://*.localhost:{port}")
    command = ["berth.server.up.web", str(number), str(start_pipe)]
    return _python(home, "web", command, inherited_fds=(number, start_pipe), **extra)


def scheduler(home: Path) -> Child:
    """Return the scheduler process. Pods survive its restarts, and end with the supervisor."""
    return _python(home, "scheduler", ["django", "run_scheduler"], BERTH_ANCHOR=process_identity())


def tasks(home: Path) -> Child:
    return _python(home, "tasks", ["berth.server.up.tasks"])


def services(home: Path, port: int) -> Child:
    """Return the services process.

    Users choose engine addresses, so the process must never call Berth's own ports.
    """
    return _python(home, "services", ["django", "run_services"], BERTH_OWN_PORTS=_own_ports(port))


def _own_ports(port: int) -> str:
    return ",".join(filter(None, [str(port), os.environ.get("BERTH_OWN_PORTS", "")]))


def _python(
    home: Path, name: str, module: list[str], inherited_fds: tuple[int, ...] = (), **extra: str
) -> Child:
    """Return a Python process, which is crash-safe and is killed when the supervisor dies."""
    return Child(
        name,
        lambda: tie_to_parent([sys.executable, "-m", *module], death_signal=signal.SIGKILL),
        {**environment(home), **extra},
        home / "logs" / f"{name}.log",
        inherited_fds,
    )
