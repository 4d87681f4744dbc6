"""Test the path of code from a Git checkout to pods in a running installation."""

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from berth.client import Client
from tests.journeys.command import Terminal
from tests.journeys.guide import guide_examples, run_as_written
from tests.journeys.installation import Installation, until

pytestmark = pytest.mark.timeout(900)
PATIENCE = 240.0


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Create a Git checkout with a program, a symbolic link, an ignored directory and an untracked file."""
    root = tmp_path / "checkout"
    (root / "src").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "data" / "big.bin").write_bytes(b"\0" * 3_000_000)
    (root / ".gitignore").write_text("data/\n")
    (root / ".berthignore").write_text("*.md\n")
    (root / "README.md").write_text("Not for pods.\n")
    (root / "src" / "train.py").write_text("print('loss 0.5')\n")
    (root / "run.sh").write_text("#!/bin/sh\nexec python src/train.py\n")
    (root / "run.sh").chmod(0o755)
    (root / "latest.py").symlink_to("src/train.py")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".gitignore", ".berthignore", "README.md", "src", "run.sh", "latest.py")
    git(root, "-c", "user.name=d", "-c", "user.email=d@example.org", "commit", "-q", "-m", "Add trainer")
    return root


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    ).stdout


def finished_log(client: Client, name: str) -> str:
    workload = client.workloads.find(name)
    until(lambda: client.workloads.get(workload.id).phase in ("completed", "failed"), PATIENCE)
    state = client.workloads.get(workload.id)
    log = client.workloads.log(workload.id).data.decode()
    assert state.phase == "completed", (state.message, log)
    return log


@pytest.mark.heavy
def test_each_pod_starts_in_a_private_copy_of_the_checkout(
    shared_berth: Installation, dave_on_shared_berth: Terminal, checkout: Path
) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    (checkout / "notes.txt").write_text("untracked\n")
    script = 'test "$PWD" = "$BERTH_CODE_DIR"; find . -type f -o -type l | sort; ./run.sh; echo x > notes.txt'
    dave.berth("submit", "-n", "code", "-p", "vision", "--gpu", "0", "--replicas", "2", "--code",
               str(checkout), "--shell", f"set -e; test $(cat notes.txt) = untracked; {script}")  # fmt: skip
    lines = finished_log(client, "code").splitlines()
    sent = (".berthignore", ".gitignore", "latest.py", "notes.txt", "run.sh", "src/train.py")
    assert lines == [*(f"./{path}" for path in sent), "loss 0.5"]
    workload = client.workloads.find("code")
    commit = git(checkout, "rev-parse", "HEAD").strip()
    assert workload.code is not None
    assert (workload.code.commit, workload.code.branch, workload.code.dirty) == (commit, "main", True)
    assert (workload.code.files, workload.code.is_stored) == (6, True)
    assert (checkout / "notes.txt").read_text() == "untracked\n"
    dave.berth("delete", "code")


@pytest.mark.heavy
def test_documented_example_runs_unchanged(dave_on_shared_berth: Terminal, tmp_path: Path) -> None:
    output = run_as_written(dave_on_shared_berth, guide_examples("Send your code")[0], tmp_path)
    assert "loss 0.5" in output
    assert "Code  " in dave_on_shared_berth.berth("describe", "digits")
    dave_on_shared_berth.berth("delete", "digits")


@pytest.mark.heavy
def test_submitting_without_code_overrides_the_code_directory_in_the_document(
    dave_on_shared_berth: Terminal, checkout: Path
) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    (checkout / "jobs").mkdir()
    document = checkout / "jobs" / "train.yaml"
    command = 'if test -n "$BERTH_CODE_DIR"; then cat jobs/train.yaml; else echo no code; fi'
    text = {"name": "file", "project": "vision", "code": "..", "command": command, "roles": [{"replicas": 1}]}
    document.write_text(json.dumps(text))
    dave.berth("submit", str(document))
    assert finished_log(client, "file") == document.read_text()
    stored = client.workloads.find("file")
    assert stored.code is not None
    dave.berth("delete", "file")
    dave.berth("submit", str(document), "--no-code")
    assert finished_log(client, "file") == "no code\n"
    dave.berth("delete", "file")


@pytest.mark.heavy
def test_upload_on_a_terminal_shows_its_progress(dave_on_shared_berth: Terminal, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.bin").write_bytes(os.urandom(2_000_000))
    command = ("submit", "-n", "progress", "-p", "vision", "--code", str(tmp_path), "--", "true")
    output = dave_on_shared_berth.typed(*command)
    assert "sending code" in output
    assert "vision/progress submitted" in output
    finished_log(dave_on_shared_berth.client(), "progress")
    dave_on_shared_berth.berth("delete", "progress")


@pytest.mark.heavy
def test_all_tasks_of_an_array_run_the_same_code(dave_on_shared_berth: Terminal, checkout: Path) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    dave.berth("submit", "-n", "sweep", "-p", "vision", "--gpu", "0", "--array", "0-1", "--code",
               str(checkout), "--watch", "--shell", "python latest.py")  # fmt: skip
    codes = [
        client.workloads.get(task.id).code for task in client.arrays.tasks(client.arrays.find("sweep").id)
    ]
    assert len({code.tree for code in codes if code is not None}) == 1
    assert [finished_log(client, f"sweep-{index}") for index in (0, 1)] == ["loss 0.5\n"] * 2
    client.arrays.delete(client.arrays.find("sweep").id)


@pytest.mark.heavy
def test_rejected_files_are_reported_before_anything_is_sent(
    shared_berth: Installation, dave_on_shared_berth: Terminal, checkout: Path
) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    before = client.code.get("vision").stored
    (checkout / "huge.bin").touch()
    os.truncate(checkout / "huge.bin", 2 * 2**30)
    command = ("submit", "-n", "huge", "-p", "vision", "--code", str(checkout), "--", "true")
    assert "huge.bin (2048.0 MiB)" in dave.rejected(*command)
    (checkout / "huge.bin").unlink()
    (checkout / "passwd").symlink_to("/etc/passwd")
    assert "passwd" in dave.rejected(*command)
    assert client.code.get("vision").stored == before
    assert list((shared_berth.home / "code").rglob("*.new")) == []


@pytest.mark.heavy
def test_downloaded_archive_contains_the_files_that_were_sent(
    dave_on_shared_berth: Terminal, checkout: Path
) -> None:
    client = dave_on_shared_berth.client()
    document = {
        "name": "archive",
        "project": "vision",
        "command": "python latest.py",
        "roles": [{"replicas": 1}],
    }
    workload = client.workloads.submit(document, code=checkout)
    assert finished_log(client, "archive") == "loss 0.5\n"
    target = checkout.parent / "archive.tar"
    with target.open("wb") as file:
        for part in client.workloads.code(workload.id):
            file.write(part)
    with tarfile.open(target) as archive:
        members = {member.name: member for member in archive}
        content = archive.extractfile("src/train.py")
        assert content is not None and content.read() == b"print('loss 0.5')\n"
    assert members["run.sh"].mode == 0o755
    assert members["latest.py"].linkname == "src/train.py"
    client.workloads.delete(workload.id)
