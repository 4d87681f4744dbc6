"""Install and uninstall the agent as a systemd service."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys

from .ec2 import get_metadata
from .run import join_pool
from .scripts import StartScript
from .server import MachineRejected, Server
from .state import AGENT_FILE, STATE, load_secret, read_file, write_private_file

UNIT_NAME = "berth-agent.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT_NAME
SYSTEMD_RUNS = "/run/systemd/system"  # exists while systemd manages the machine, see sd_booted(3)
ENVIRONMENT_FILE = os.path.join(STATE, "environment")
# Variables that the service inherits from `install`, besides those that begin with BERTH_.
_INHERITED = (
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL", "UV_PYTHON_INSTALL_MIRROR",
)  # fmt: skip
REJECTED = 3  # exit code after the server rejected the agent; another attempt would fail as well

# Pods outlive a restart of the agent, so only the agent's own process is killed. Delegation keeps systemd
# from disabling the controllers that limit pods. An out-of-memory kill in a pod must not stop the service,
# and a task limit would apply to all pods together.
UNIT = """[Unit]
Description=Berth agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
EnvironmentFile={environment}
ExecStart={python} {agent} run
Restart=always
RestartSec=5
RestartPreventExitStatus=2 {rejected}
KillMode=process
Delegate=yes
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=1048576
LimitMEMLOCK=infinity

[Install]
WantedBy=multi-user.target
"""


class CannotInstall(Exception):
    """Raised with the reason and a remedy if the service cannot be installed or removed."""


def install(server: Server, pool: str, *, join_later: bool = False) -> None:
    """Join the pool, then install, enable and start the service.

    With `join_later`, the service joins when it starts, using the token in its environment file. Raises
    CannotInstall, or MachineRejected if the server rejects the machine.
    """
    _check_host()
    if not load_secret() and not join_later:
        try:
            join_pool(server, pool, get_metadata("instance-id"))
        except OSError as error:
            raise CannotInstall("The machine could not join pool %s: %s" % (pool, error)) from None
    _store_agent()
    write_private_file(ENVIRONMENT_FILE, environment_file(keep_token=join_later))
    with open(UNIT_FILE + ".new", "w") as file:
        file.write(unit())
    os.rename(UNIT_FILE + ".new", UNIT_FILE)
    _systemctl("daemon-reload")
    _systemctl("enable", UNIT_NAME)
    _systemctl("restart", UNIT_NAME)


def uninstall(server: Server, *, force: bool = False) -> str:
    """Stop the node, leave the pool, and delete the service and all of the agent's files.

    Returns a note about remaining steps, or an empty string. Raises CannotInstall if the machine is in use as
    a node.
    """
    _check_host()
    start = StartScript()
    if start.answer and not force:
        node = start.answer["node"]
        raise CannotInstall(
            "This machine serves as node %s. Drain it first (`berth machine remove`), or stop its pods with"
            " --force." % node
        )
    _systemctl("disable", "--now", UNIT_NAME, check=False)
    start.job.kill()
    start.stop()
    note = _leave(server)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(UNIT_FILE)
    _systemctl("daemon-reload")
    shutil.rmtree(STATE, ignore_errors=True)
    return note


def unit() -> str:
    return UNIT.format(
        environment=_quote_argument(ENVIRONMENT_FILE), python=_quote_argument(sys.executable),
        agent=_quote_argument(AGENT_FILE), rejected=REJECTED,
    )  # fmt: skip


def environment_file(*, keep_token: bool) -> str:
    """Return this process's settings in the format of a systemd EnvironmentFile."""
    lines = []
    for name in sorted(os.environ):
        is_setting = name.startswith("BERTH_") or name in _INHERITED
        if is_setting and (keep_token or name != "BERTH_JOIN_TOKEN"):
            lines.append("%s=%s\n" % (name, _quote_value(name, os.environ[name])))
    return "".join(lines)


def load_environment_file() -> None:
    """Load the installed service's settings into the environment without overriding existing variables."""
    for assignment in shlex.split(read_file(ENVIRONMENT_FILE)):
        name, _, value = assignment.partition("=")
        os.environ.setdefault(name, value)


def _check_host() -> None:
    if not os.path.isdir(SYSTEMD_RUNS):
        raise CannotInstall(
            "This machine does not run systemd. Run `%s %s run` under its own service manager."
            % (sys.executable, sys.argv[0])
        )
    if os.geteuid() != 0:
        raise CannotInstall("Only root can manage services. Repeat the command with sudo.")


def _store_agent() -> None:
    """Copy the agent to the path from which the service runs it."""
    with open(sys.argv[0], "rb") as file:
        write_private_file(AGENT_FILE, file.read())


def _leave(server: Server) -> str:
    secret = load_secret()
    if secret:
        try:
            server.send("machines/leave", {}, secret)
        except MachineRejected:
            pass  # the machine was removed on the server
        except OSError as error:
            return "The server did not respond (%s). Remove the machine with `berth machine remove`." % error
    return ""


def _systemctl(*arguments: str, check: bool = True) -> None:
    done = subprocess.run(
        ["systemctl", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if check and done.returncode:
        output = done.stdout.decode(errors="replace").strip()
        raise CannotInstall("systemctl %s failed: %s" % (" ".join(arguments), output))


def _quote_argument(path: str) -> str:
    """Quote a path for a unit file, in which % begins a specifier and $ a variable."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return '"%s"' % escaped if set(path) & set(" \t\"'\\;") else escaped


def _quote_value(name: str, value: str) -> str:
    if not value.isprintable():
        raise CannotInstall("The variable %s contains control characters. Remove them." % name)
    return shlex.quote(value)
