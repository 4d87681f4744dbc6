"""Service managers that keep the agent running: systemd, or a shell loop where systemd is missing."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys

from .jobs import Job
from .state import AGENT_FILE, STATE

SYSTEMD_RUNS = "/run/systemd/system"  # this directory exists if systemd manages the machine; see sd_booted(3)
UNIT_NAME = "berth-agent.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT_NAME
ENVIRONMENT_FILE = os.path.join(STATE, "environment")
REJECTED = 3  # exit code if the server rejects the agent and would reject it again
RESTART_SECONDS = 5
NOT_RESTARTED = (2, REJECTED)
# Environment variables passed to the supervisor. The agent reads its own settings from its environment file.
_SUPERVISED = ("PATH", "HOME", "LANG", "BERTH_MACHINE_STATE")

# Pods must survive an agent restart, so only the agent's own process is killed.
# Delegation keeps systemd from disabling the controllers that limit pods.
# An out-of-memory kill in a pod must not stop the service.
# A task limit would apply to all pods together.
UNIT = """[Unit]
Description=Berth agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
EnvironmentFile={environment}
ExecStart={python} {agent} run
Restart=always
RestartSec={seconds}
RestartPreventExitStatus={not_restarted}
KillMode=process
Delegate=yes
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=1048576
LimitMEMLOCK=infinity

[Install]
WantedBy=multi-user.target
"""
SUPERVISOR = """while :; do
  {python} {agent} run
  case $? in {not_restarted}) exit ;; esac
  sleep {seconds}
done
"""


class CannotInstall(Exception):
    """Raised if the agent cannot be installed or removed. The message contains the reason and a remedy."""


class Systemd:
    """systemd service of the agent, started at boot. Stopping the service does not stop pods."""

    installed = "The agent is installed and starts with the machine. Its log: journalctl -u berth-agent"

    def start(self) -> None:
        with open(UNIT_FILE + ".new", "w") as file:
            file.write(systemd_unit())
        os.rename(UNIT_FILE + ".new", UNIT_FILE)
        _systemctl("daemon-reload")
        _systemctl("enable", UNIT_NAME)
        _systemctl("restart", UNIT_NAME)

    def stop(self) -> None:
        _systemctl("stop", UNIT_NAME, check=False)

    def remove(self) -> None:
        _systemctl("disable", "--now", UNIT_NAME, check=False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(UNIT_FILE)
        _systemctl("daemon-reload")


class Supervisor:
    """Shell loop that restarts the agent, but is not started at boot."""

    installed = "The agent is installed and runs until the machine stops."

    def __init__(self) -> None:
        self.job = Job("supervisor")

    def start(self) -> None:
        command = SUPERVISOR.format(
            python=shlex.quote(sys.executable), agent=shlex.quote(AGENT_FILE), seconds=RESTART_SECONDS,
            not_restarted=" | ".join(map(str, NOT_RESTARTED)),
        )  # fmt: skip
        env = {name: os.environ[name] for name in _SUPERVISED if name in os.environ}
        self.job.start(command, env)

    def stop(self) -> None:
        self.job.kill()

    def remove(self) -> None:
        self.job.kill()


def find_manager(*, detached: bool) -> Systemd | Supervisor:
    """Return the service manager for this machine.

    Raises CannotInstall if there is none, or if this process is not root.
    """
    if os.geteuid() != 0:
        raise CannotInstall("Only root can manage services. Repeat the command with sudo.")
    if os.path.isdir(SYSTEMD_RUNS):
        return Systemd()
    if not detached:
        raise CannotInstall(
            "This machine does not run systemd. Run `%s %s run` under its own service manager."
            % (sys.executable, sys.argv[0])
        )
    return Supervisor()


def systemd_unit() -> str:
    # systemd expects an unquoted path in EnvironmentFile.
    return UNIT.format(
        environment=ENVIRONMENT_FILE.replace("%", "%%"), python=_quote_argument(sys.executable),
        agent=_quote_argument(AGENT_FILE), seconds=RESTART_SECONDS,
        not_restarted=" ".join(map(str, NOT_RESTARTED)),
    )  # fmt: skip


def _systemctl(*arguments: str, check: bool = True) -> None:
    done = subprocess.run(
        ["systemctl", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if check and done.returncode:
        output = done.stdout.decode(errors="replace").strip()
        raise CannotInstall("systemctl %s failed: %s" % (" ".join(arguments), output))


def _quote_argument(path: str) -> str:
    """Quote a path for a systemd unit file, where % and $ have a special meaning."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return '"%s"' % escaped if set(path) & set(" \t\"'\\;") else escaped
