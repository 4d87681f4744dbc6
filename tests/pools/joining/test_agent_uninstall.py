"""Tests that uninstalling an agent ends its processes and deletes its files, even after kills."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.runtimes.ray.scripts import STOP
from tests.api.pools.joining.test_agent_service import Host
from tests.contracts.pods import poll_until

BUSY = "while :; do mkdir -p {state}/environments/$$; date >> {state}/environments/$$/log; done"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Return a machine without systemd, with an agent whose server does not respond."""
    host = Host(tmp_path, "http://127.0.0.1:9", "")
    host.installer = host.installer.replace(repr(str(tmp_path)) + "\n", repr("/nowhere") + "\n")
    host.state.mkdir()
    (host.state / "secret").write_text("machine_secret")
    yield host
    for pid in processes(host):
        os.kill(pid, signal.SIGKILL)


def processes(host: Host) -> list[int]:
    """Return the running processes of the agent and of its scripts."""
    mark = f"{host.state}/".encode()
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in path.read_bytes():
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return pids


def run_as_agent(host: Host, *lines: str) -> None:
    program = "\n".join(["from pools.joining.agent.jobs import Job", *lines])
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **host.env}, check=True)


def uninstall(host: Host) -> None:
    done = host.run("uninstall", "--force")
    assert done.returncode == 0, done.stderr
    assert not host.state.exists()
    assert processes(host) == []


def test_agent_is_uninstalled_even_if_its_supervisor_was_killed(host: Host) -> None:
    assert host.install("--detached").returncode == 0
    supervisor = int((host.state / "supervisor.pid").read_text().split()[0])
    poll_until(lambda: len(processes(host)) == 3)  # the supervisor, its script and the agent
    os.kill(supervisor, signal.SIGKILL)
    uninstall(host)


@pytest.mark.heavy
def test_agent_is_uninstalled_even_if_its_supervisor_was_never_recorded(host: Host) -> None:
    assert host.install("--detached").returncode == 0
    (host.state / "supervisor.pid").unlink()  # as if `install` was killed just before it wrote the file
    uninstall(host)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["prepare", "start"])
def test_scripts_that_still_write_files_are_stopped_before_the_files_are_deleted(
    host: Host, name: str
) -> None:
    run_as_agent(host, f"Job({name!r}).start({BUSY.format(state=host.state)!r}, {host.env!r})")
    poll_until((host.state / "environments").exists)
    uninstall(host)


@pytest.mark.heavy
def test_uninstallation_deletes_files_written_by_processes_that_end_late(host: Host) -> None:
    # Processes that the agent does not know, such as those of a plugin, may write until they end.
    loop = f"mkdir {host.state}/late; for i in $(seq 300); do mkdir {host.state}/late/$i || exit; done"
    late = subprocess.Popen(["sh", "-c", loop])
    try:
        poll_until((host.state / "late").exists)
        uninstall(host)
    finally:
        late.kill()
        late.wait()


@pytest.mark.heavy
def test_uninstallation_that_could_not_delete_all_files_can_be_repeated(host: Host) -> None:
    # Berth repeats it on SSH hosts, where only the agent's settings show that the files belong to Berth.
    assert host.install("--detached").returncode == 0
    (host.state / "environments").mkdir()
    working = host.installer
    fails = "service.DELETE_SECONDS, service.shutil.rmtree = 0.2, lambda *_, **__: None"
    host.installer = working.replace("import main, managers", f"import main, managers, service\n{fails}")
    done = host.run("uninstall", "--force")
    assert done.returncode == 1
    assert f"{host.state} could not be deleted completely." in done.stderr
    assert {path.name for path in host.state.iterdir()} == {"environment", "berth-agent", "environments"}
    host.installer = working
    uninstall(host)


def test_stop_script_ends_leftover_ray_processes_and_nodes_that_ignore_signals(tmp_path: Path) -> None:
    place = tmp_path / "ray"
    (place / "node").mkdir(parents=True)
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True);"
    program = f"{stubborn} time.sleep(1000)"
    node = subprocess.Popen([sys.executable, "-c", program, str(place / "node.json")], stdout=subprocess.PIPE)
    secrets = [place / "node/secret", tmp_path / "other/node/secret"]
    ray, other = (
        subprocess.Popen(["sleep", "1000"], env={**os.environ, "RAY_AUTH_TOKEN_PATH": str(secret)})
        for secret in secrets
    )
    try:
        assert node.stdout
        node.stdout.readline()
        (place / "node/main.pid").write_text(str(node.pid))
        script = STOP.replace("%s) + 22))", "%s) + 1))")
        assert script != STOP
        env = {**os.environ, "BERTH_MACHINE_STATE": str(tmp_path)}
        subprocess.run(["sh", "-c", script], env=env, check=True)
        assert (node.wait(60), ray.wait(60)) == (-signal.SIGKILL, -signal.SIGKILL)
        assert other.poll() is None
    finally:
        for process in (node, ray, other):
            process.kill()
            process.wait()
