"""Tests for commands in pods of a running installation whose web processes are killed."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from berth.client.channels import OUTPUT
from berth.client.errors import Unreachable
from tests.journeys.command import Terminal
from tests.journeys.guide import guide_examples, run_as_written
from tests.journeys.installation import Installation, child_pids, command_line, until

pytestmark = pytest.mark.timeout(900)


@pytest.mark.heavy
def test_guide_examples_run_in_the_pod_until_the_web_processes_are_killed(
    shared_berth: Installation, dave_on_shared_berth: Terminal, tmp_path: Path
) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    dave.berth("submit", "-n", "train", "-p", "vision", "--gpu", "0", "--", "sleep", "3600")
    workload = client.workloads.find("train")
    until(lambda: client.workloads.get(workload.id).phase == "running")
    commands, copies, connections, ports = guide_examples("Run commands in a pod")
    (tmp_path / "settings.json").write_text('{"lr": 0.1}\n')
    (tmp_path / "samples.csv").write_text("1,2\n")
    shown = run_as_written(dave, commands, tmp_path, typed="cat settings.json; exit\n")
    assert "run 1 in /" in shown
    assert client.workloads.exec(workload.id, ["cat", "settings.json"]).output == b'{"lr": 0.1}\n'
    run_as_written(dave, copies, tmp_path)
    (tmp_path / "notes.txt").write_text("remember\n")
    shown = run_as_written(dave, connections, tmp_path, **_own_ssh(dave, tmp_path))
    assert "run 1 in /" in shown
    assert client.workloads.exec(workload.id, ["cat", "notes.txt"]).output == b"remember\n"
    for copy in ("copy.csv", "backup/samples.csv"):
        assert (tmp_path / copy).read_text() == "1,2\n"

    with socket.create_server(("127.0.0.1", 0)) as program:  # pods share the machine's network
        example = ports.replace("8888", f"0:{program.getsockname()[1]}")
        env = dave._environment() | {"PATH": f"{dave.config / 'bin'}:{os.environ['PATH']}"}
        with subprocess.Popen(
            ["sh", "-c", f"exec {example}"], env=env, stdout=subprocess.PIPE, text=True
        ) as forwarding:
            assert forwarding.stdout is not None
            local = int(forwarding.stdout.readline().split()[0].rpartition(":")[2])
            program.accept()[0].close()  # the command tries the port when it starts
            with socket.create_connection(("127.0.0.1", local)) as connection:
                inside, _ = program.accept()
                with inside:
                    inside.sendall(b"hello")
                assert connection.recv(5, socket.MSG_WAITALL) == b"hello"
            forwarding.kill()

    script = f"setsid sleep 7000.{os.getpid()} & echo started; wait"
    command = ["sh", "-c", script]
    with pytest.raises(Unreachable), client.workloads.open_channel(workload.id, command) as channel:
        assert channel.receive() == (OUTPUT, b"started\n")
        assert shared_berth.process
        for pid in child_pids(shared_berth.process.pid):  # any web process may serve the channel
            if "berth: web" in command_line(pid):
                os.kill(pid, signal.SIGKILL)
        while True:
            channel.receive()
    until(lambda: not _sleeping())
    until(lambda: client.workloads.get(workload.id).phase == "running", details=lambda: shared_berth.output)
    client.workloads.cancel(workload.id)


def _own_ssh(dave: Terminal, home: Path) -> dict[str, str]:
    """Return environment variables with an `ssh` that reads its settings from this home.

    OpenSSH ignores HOME.
    """
    programs = dave.config / "bin"
    script = f'#!/bin/sh\nexec {shutil.which("ssh")} -F {home}/.ssh/config "$@"\n'
    (programs / "ssh").write_text(script)
    (programs / "ssh").chmod(0o755)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").touch()
    return {"HOME": str(home)}


def _sleeping() -> bool:
    pattern = f"^sleep 7000.{os.getpid()}"
    return subprocess.run(["pgrep", "-f", pattern], check=False, capture_output=True).returncode == 0
