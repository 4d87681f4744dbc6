"""Test restoring a destroyed installation from a backup."""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, until

pytestmark = [pytest.mark.timeout(900), pytest.mark.heavy]
WORKS = "sleep 600 # of the backup journey"


@pytest.fixture
def berth() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="berth-backup-") as place:
        gpus = {"BERTH_DECLARED_GPUS": "8"}
        installation = Installation(Path(place) / "home", settings=gpus)
        yield installation
        installation.clear()


def admin(berth: Installation, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "berth.cli.main", "admin", *words],
        env=berth.env(), capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout if done.returncode == 0 else done.stderr


def pods(berth: Installation) -> list[int]:
    return [
        pid for pid, line in berth.processes().items() if "of the backup journey" in line and "sh -c" in line
    ]


def submit(terminal: Terminal, name: str, *command: str) -> None:
    terminal.berth(
        "submit", "-n", name, "-p", "vision", "--gpu", "1", "--cpu", "0.1", "--memory", "64", "--", *command
    )


def phase(terminal: Terminal, name: str) -> str:
    phases = [workload["phase"] for workload in terminal.json("list", "--all") if workload["name"] == name]
    return phases[0] if phases else ""


def test_restored_installation_continues_its_workloads_without_duplicates(
    berth: Installation, tmp_path: Path
) -> None:
    berth.start("--demo")
    dave = sign_in(berth, "dave", tmp_path / "dave")
    submit(dave, "done", "true")
    submit(dave, "work", "sh", "-c", WORKS)
    until(lambda: phase(dave, "done") == "completed" and phase(dave, "work") == "running")
    file = berth.home.parent / "berth.backup"
    assert "2 workloads" in admin(berth, "backup", str(file), "--with-keys")

    submit(dave, "later", "sh", "-c", WORKS)
    until(lambda: len(pods(berth)) == 2)
    assert "Berth is already running" in admin(berth, "restore", str(file), "--force", "--yes")
    (before,) = (workload for workload in dave.json("list") if workload["name"] == "work")

    berth.end(signal.SIGKILL)
    until(lambda: not berth.processes())
    shutil.rmtree(berth.home)
    assert str(file) in admin(berth, "restore", str(file))
    assert (berth.home / "postgres" / "PG_VERSION").exists()

    berth.start()
    assert phase(dave, "done") == "completed"  # the old token was restored too
    assert phase(dave, "later") == ""
    until(lambda: phase(dave, "work") == "running" and len(pods(berth)) == 1)
    (after,) = (workload for workload in dave.json("list") if workload["name"] == "work")
    assert after["id"] == before["id"]
    assert after["run"] > before["run"]
    assert "The runtime no longer knows the pod." in dave.berth("events", "work", "--limit", "200")
    with dave.client() as client:
        assert [pod.state for pod in client.workloads.pods(after["id"])].count("running") == 1
