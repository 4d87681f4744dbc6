"""Tests for the agent as a systemd service: install, kill, restart and uninstall.

The test containers have no systemd. A small service manager takes the place of systemd. It reads the
installed unit, and runs the unit's command with the unit's environment file.
"""

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from pools import services
from pools.joining.instructions import Instructions
from pools.models import Machine, Node, NodePool
from tests.api.pools.joining.test_joining import Wired, reconcile_pool
from tests.cast import Cast
from tests.contracts.pods import poll_until
from tests.support.agents import NO_METADATA, REJECTED, write_agent
from tests.support.interpreters import find_python

# The installed agent, run as root, with the test's paths instead of the machine's.
INSTALLER = """
import os, sys
sys.path.insert(0, {agent!r})
sys.argv[0] = {agent!r}
os.geteuid = lambda: 0
from berth_agent import main, managers
managers.UNIT_FILE, managers.SYSTEMD_RUNS = {unit!r}, {booted!r}
sys.exit(main.main())
"""
SYSTEMCTL = """#!{python}
import os, signal, subprocess, sys
command = sys.argv[1]
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + chr(10))
if command == "restart":
    subprocess.Popen([sys.executable, {manager!r}], start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=open({place!r} + "/manager.log", "wb"), stderr=subprocess.STDOUT)
if command == "disable":
    for name in ("manager", "service"):
        os.kill(int(open({place!r} + "/" + name + ".pid").read()), signal.SIGKILL)
"""
# Runs the unit's command and restarts it, unless its exit code forbids that.
MANAGER = """
import os, shlex, subprocess, time
unit = dict(line.split("=", 1) for line in open({unit!r}) if "=" in line)
variables = [line.split("=", 1) for line in shlex.split(open(shlex.split(unit["EnvironmentFile"])[0]).read())]
open({place!r} + "/manager.pid", "w").write(str(os.getpid()))
while True:
    env = {{"PATH": os.environ["PATH"], **dict(variables)}}
    service = subprocess.Popen(shlex.split(unit["ExecStart"]), env=env, cwd="/")
    with open({place!r} + "/service.new", "w") as file:
        file.write(str(service.pid))
    os.rename({place!r} + "/service.new", {place!r} + "/service.pid")
    if str(service.wait()) in unit["RestartPreventExitStatus"].split():
        break
    time.sleep(0.1)
"""
# A node whose pod is a process that outlives the agent. Each start ends the pods of the previous one.
START = "echo started >> {place}/starts; setsid sleep 300 & echo $! > {place}/pod.pid"
STOP = "kill $(cat {place}/pod.pid); echo stopped > {place}/stops"
UPGRADE = "echo upgraded >> {place}/upgrades; [ ! -e {place}/hold ] || sleep 300; [ ! -e {place}/fail ]"
CHECK = "grep -q ') [DRS]' /proc/$(cat {place}/pod.pid)/stat"  # a killed pod may stay as a zombie


class Host:
    def __init__(self, place: Path, url: str, token: str, wired: Wired | None = None) -> None:
        self.wired = wired or Wired()
        self.place, self.unit, self.state = place, place / "berth-agent.service", place / "state"
        self.agent = write_agent(place, report_seconds=0.2)
        values = {
            "agent": str(self.agent), "unit": str(self.unit), "booted": str(place), "place": str(place),
            "python": sys.executable, "log": str(place / "systemctl.log"),
            "manager": str(place / "manager.py"),
        }  # fmt: skip
        (place / "manager.py").write_text(MANAGER.format(**values))
        (place / "systemctl").write_text(SYSTEMCTL.format(**values))
        (place / "systemctl").chmod(0o755)
        self.installer = INSTALLER.format(**values)
        self.url, self.env = url, {
            "PATH": f"{place}:{os.environ['PATH']}", "BERTH_JOIN_TOKEN": token,
            "BERTH_NODE_WORKSPACES": "/mnt/a b$c", "BERTH_MACHINE_STATE": str(self.state), **NO_METADATA,
        }  # fmt: skip

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-S", "-c", self.installer, *arguments], env=self.env, text=True,
            capture_output=True, check=False, timeout=180,
        )  # fmt: skip

    def install(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.run("install", "--url", self.url, "--pool", "metal", *arguments)

    def pid(self, name: str) -> int:
        return int((self.place / f"{name}.pid").read_text())

    def is_running(self, name: str) -> bool:
        try:
            return " Z " not in Path(f"/proc/{self.pid(name)}/stat").read_text()
        except (OSError, ValueError):
            return False  # the file is missing or has not been written yet


@pytest.fixture
def host(
    live_server: LiveServer, cast: Cast, metal_pool: NodePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Host]:
    _, token = services.issue_join_token(
        actor=cast.alice, pool=metal_pool, lifetime=timedelta(hours=1), at=timezone.now()
    )
    NodePool.objects.update(gpus_per_node=0, cpu_milli=1, memory_mib=1, nodes_desired=1)
    wired = Wired()
    scripts = Instructions(*(script.format(place=tmp_path) for script in (START, STOP, CHECK, UPGRADE)))
    wired.instructions = lambda node: scripts
    monkeypatch.setattr("pools.api.joining.load_wiring", lambda: wired)
    host = Host(tmp_path, live_server.url, token, wired)
    yield host
    for name in ("manager", "service", "pod"):
        if host.is_running(name):
            os.kill(host.pid(name), signal.SIGKILL)


@pytest.mark.django_db(transaction=True)
def test_pods_keep_running_after_the_agent_is_killed(host: Host, metal_pool: NodePool) -> None:
    installed = host.install()
    assert (installed.returncode, installed.stderr) == (0, "")
    assert "journalctl -u berth-agent" in installed.stdout
    log = (host.place / "systemctl.log").read_text().splitlines()
    assert log == ["daemon-reload", "enable berth-agent.service", "restart berth-agent.service"]
    environment = host.state / "environment"
    assert stat.S_IMODE(environment.stat().st_mode) == 0o600
    assert "join_" not in environment.read_text(), "the token is not stored once the machine has joined"
    assert shlex.split(environment.read_text())[-2:] == [
        "BERTH_POOL=metal", f"BERTH_URL={host.url}"]  # fmt: skip
    assert "BERTH_NODE_WORKSPACES=/mnt/a b$c" in shlex.split(environment.read_text())
    reconcile_pool(metal_pool)
    poll_until(lambda: (host.place / "pod.pid").exists() and host.is_running("pod"))
    # From now on, a restarted agent knows that the script was started.
    poll_until((host.state / "start.pid").exists)

    former, pod = host.pid("service"), host.pid("pod")
    os.kill(former, signal.SIGKILL)
    poll_until(lambda: host.pid("service") != former and host.is_running("service"))
    restarted = timezone.now()
    poll_until(lambda: Machine.objects.get().last_seen_at > restarted)
    assert (host.place / "starts").read_text() == "started\n", "the node was not started again"
    assert host.pid("pod") == pod
    assert host.is_running("pod")

    rejected = host.run("uninstall")
    assert rejected.returncode == 1
    assert "This machine serves as node metal-0." in rejected.stderr
    forced = host.run("uninstall", "--force")
    assert (forced.returncode, forced.stderr) == (0, "metal-0: stop script exited with 0\n")
    assert not host.is_running("service")
    assert not host.is_running("pod")
    assert Machine.objects.get().departed_at is not None
    assert not host.state.exists()
    assert not host.unit.exists()


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_restarted_agent_restarts_its_node_if_the_node_has_died(host: Host, metal_pool: NodePool) -> None:
    # After a reboot, the node's processes are gone and the boot ID is different.
    host.install()
    reconcile_pool(metal_pool)
    poll_until(lambda: (host.place / "pod.pid").exists() and host.is_running("pod"))
    os.kill(host.pid("pod"), signal.SIGKILL)
    os.kill(host.pid("service"), signal.SIGKILL)
    poll_until(lambda: (host.place / "starts").read_text() == "started\nstarted\n")
    assert Node.objects.count() == 1


def until_next_reports(since: datetime) -> None:
    poll_until(lambda: Machine.objects.get().last_seen_at > since + timedelta(seconds=1))


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_changed_agent_service_settings_are_applied_without_stopping_pods(
    host: Host, metal_pool: NodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pool's head node is lost, and another machine replaces it.
    start = START.format(place=host.place)
    host.install()
    reconcile_pool(metal_pool)
    former = host.wired.instructions(Node.objects.get())

    def change_instructions(changed: Instructions) -> None:
        host.wired.instructions = lambda node: changed

    poll_until(lambda: (host.place / "pod.pid").exists() and host.is_running("pod"))
    pod = host.pid("pod")
    for changed, result in (
        (Instructions(), ""),
        (replace(former, start=f"{start} # head 2", update=f"echo 2 >> {host.place}/updates"), "2\n"),
        (replace(former, start=f"{start} # head 3", update=f"echo 3 >> {host.place}/updates"), "2\n3\n"),
    ):
        change_instructions(changed)
        until_next_reports(timezone.now())
        updates = host.place / "updates"
        assert (updates.read_text() if updates.exists() else "") == result
    assert (host.pid("pod"), host.is_running("pod")) == (pod, True)
    assert (host.place / "starts").read_text() == "started\n"
    change_instructions(replace(former, start=f"{start} # other Ray", update="exit 1"))
    poll_until(lambda: (host.place / "starts").read_text() == "started\nstarted\n")


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_agent_rejected_by_the_server_is_not_restarted(host: Host) -> None:
    host.install()
    Machine.objects.update(departed_at=timezone.now())
    poll_until(lambda: not host.is_running("manager"))
    again = host.install()
    assert "The agent is installed" in again.stdout, "the installation can be repeated"


@pytest.mark.heavy
@pytest.mark.skipif(find_python("3.9") is None, reason="no Python 3.9 on this machine")
@pytest.mark.django_db(transaction=True)
def test_agent_on_python_3_9_joins_and_starts_its_node(host: Host, metal_pool: NodePool) -> None:
    python = find_python("3.9")
    assert python
    env = {**host.env, "BERTH_URL": host.url, "BERTH_POOL": "metal"}
    agent = subprocess.Popen([python, "-S", str(host.agent), "run"], env=env)
    try:
        poll_until(Machine.objects.exists)
        reconcile_pool(metal_pool)
        poll_until(lambda: (host.place / "pod.pid").exists() and host.is_running("pod"))
        poll_until(lambda: Node.objects.get().inventory.get("python", "").startswith("3.9."))
    finally:
        agent.kill()
        agent.wait()


@pytest.mark.django_db(transaction=True)
def test_nothing_is_installed_if_the_join_token_is_rejected(host: Host) -> None:
    host.env["BERTH_JOIN_TOKEN"] = "join_wrong"
    rejected = host.install()
    assert (rejected.returncode, rejected.stderr) == (
        REJECTED,
        "rejected: This is not a join token for this pool. Issue a new token.\n",
    )
    assert not host.unit.exists()
    assert not (host.place / "systemctl.log").exists()


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_agent_service_can_join_later_with_a_stored_token(host: Host) -> None:
    assert host.install("--join-later").returncode == 0
    poll_until(Machine.objects.exists)
    assert "BERTH_JOIN_TOKEN" in (host.state / "environment").read_text()


def test_installation_without_systemd_suggests_the_machines_service_manager(tmp_path: Path) -> None:
    host = Host(tmp_path, "https://berth.example.org", "join_token")
    host.installer = host.installer.replace(repr(str(tmp_path)) + "\n", repr("/nowhere") + "\n")
    rejected = host.install()
    assert rejected.returncode == 1
    assert rejected.stderr == (
        f"berth-agent: This machine does not run systemd. Run `{sys.executable} {host.agent} run` under its "
        "own service manager.\n"
    )


def test_installation_by_an_unprivileged_user_is_rejected(tmp_path: Path) -> None:
    host = Host(tmp_path, "https://berth.example.org", "join_token")
    host.installer = host.installer.replace("lambda: 0", "lambda: 1000")
    assert "Repeat the command with sudo." in host.install().stderr


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["install"], "No server URL is set. Set --url or BERTH_URL"),
        (["install", "--url", "http://berth.example.org"], "is not https://"),
        (["--url", "https://berth.example.org", "install"], "No pool is set. Set --pool or BERTH_POOL"),
        (["instal"], "invalid choice: 'instal'"),
    ],
)
def test_incomplete_agent_command_reports_the_missing_option(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    done = Host(tmp_path, "", "").run(*arguments)
    assert done.returncode == 2
    assert problem in done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize("directory", ["state", "a b%c"])
def test_systemd_unit_passes_systemd_analyze(tmp_path: Path, directory: str) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    host = Host(tmp_path, "", "")
    state = tmp_path / directory
    state.mkdir(exist_ok=True)
    host.env["BERTH_MACHINE_STATE"] = str(state)
    shutil.copy(host.agent, state / "berth-agent")
    unit = host.run("unit").stdout
    assert f"ExecStart={sys.executable} " in unit
    assert "WantedBy=multi-user.target\n" in unit, "the agent starts when the machine boots"
    host.unit.write_text(unit)
    checked = subprocess.run(
        [program, "verify", "--man=no", str(host.unit)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if "berth-agent" in line]) == (
        0,
        [],
    )


def test_systemd_unit_escapes_spaces_and_specifiers_in_paths(tmp_path: Path) -> None:
    host = Host(tmp_path, "", "")
    host.env["BERTH_MACHINE_STATE"] = "/srv/a b%c"
    unit = host.run("unit").stdout
    assert "EnvironmentFile=/srv/a b%%c/environment\n" in unit
    assert json.dumps("/srv/a b%%c/berth-agent") in unit
