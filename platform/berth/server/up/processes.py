"""Processes of an installation, with their commands and environments."""

import os
import signal
import sys
from ipaddress import ip_address
from pathlib import Path
from socket import socket

from berth.db.embedded import Embedded
from berth.home import CHECKOUT, in_checkout
from berth.server.up.child import Child
from berth.server.up.orphans import anchor
from berth.tied import tied


def environment(home: Path) -> dict[str, str]:
    values = {**os.environ, "BERTH_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    values.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
    if in_checkout():
        ways = [str(CHECKOUT), str(CHECKOUT / "platform"), values.get("PYTHONPATH", "")]
        values["PYTHONPATH"] = os.pathsep.join(filter(None, ways))
    return values


def database(home: Path, cluster: Embedded) -> Child:
    def command() -> list[str]:
        cluster.prepare()
        return cluster.command()

    log = home / "logs" / "postgres.log"
    return Child("database", command, dict(os.environ), log, stop_by=signal.SIGINT)


def web(home: Path, listening: socket, starts: int) -> Child:
    """Return the web process, which accepts requests once it reads the end of file from the pipe `starts`."""
    number = listening.fileno()
    host, port = listening.getsockname()[:2]
    more = {"BERTH_OWN_PORTS": _own_ports(port)}
    if ip_address(host).is_loopback:
        # Browsers resolve every name under localhost to their own machine.
        more["BERTH_APPS_ORIGIN"] = os.environ.get("BERTH_APPS_ORIGIN", f"http://*.localhost:{port}")
    command = ["berth.server.up.web", str(number), str(starts)]
    return _python(home, "web", command, passes=(number, starts), **more)


def scheduler(home: Path) -> Child:
    """Return the scheduler process. Pods end with the supervisor, so they survive scheduler restarts."""
    return _python(home, "scheduler", ["django", "run_scheduler"], BERTH_ANCHOR=anchor())


def tasks(home: Path) -> Child:
    return _python(home, "tasks", ["berth.server.up.tasks"])


def services(home: Path, port: int) -> Child:
    """Return the services process. It never calls Berth's own ports, since users choose engine addresses."""
    return _python(home, "services", ["django", "run_services"], BERTH_OWN_PORTS=_own_ports(port))


def _own_ports(port: int) -> str:
    return ",".join(filter(None, [str(port), os.environ.get("BERTH_OWN_PORTS", "")]))


def _python(home: Path, name: str, module: list[str], passes: tuple[int, ...] = (), **more: str) -> Child:
    """Return a Python process that is killed when the supervisor dies. All processes are crash-safe."""
    return Child(
        name,
        lambda: tied([sys.executable, "-m", *module], by=signal.SIGKILL),
        {**environment(home), **more},
        home / "logs" / f"{name}.log",
        passes,
    )
