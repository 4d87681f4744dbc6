"""Tests for Git servers and URLs that could harm the scheduler, and for a kill during a fetch."""

import os
import subprocess
import sys
from concurrent.futures import wait

import pytest

from berth.core.errors import Invalid
from berth.db.models import Lease
from projects.models import CodeFetch
from tests.code.git_server import Repository, git
from tests.contracts.pods import poll_until
from tests.scheduler.code.test_git_code import Scene, contents, repository, scene, server

__all__ = ["repository", "scene", "server"]

HANG = """
import sys, time
from pathlib import Path
import django
django.setup()
from projects.code.git.program import GitProgram, base_environment
home = Path(sys.argv[1])
git = GitProgram(home, base_environment(home, "https", {}), 2**20, time.monotonic() + 600, lambda: False)
git.run("-c", f"alias.hang=!sleep {sys.argv[2]}; true", "hang")
"""


def commands(mark: str) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line == f"sleep {mark}"]


@pytest.mark.heavy
def test_git_helpers_end_when_the_scheduler_is_killed(tmp_path: object) -> None:
    mark = f"5000.{os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    scheduler = subprocess.Popen([sys.executable, "-c", HANG, str(tmp_path), mark], env=environment)
    poll_until(lambda: commands(mark))
    scheduler.kill()
    scheduler.wait()
    poll_until(lambda: not commands(mark))


@pytest.mark.heavy
def test_two_mebibyte_file_name_fails_the_workload_with_a_short_message(
    scene: Scene, repository: Repository
) -> None:
    blob = git(repository.path, "hash-object", "-w", "--stdin", source=b"evil")
    raw = b"100644 " + b"a" * (2 * 2**20) + b"\0" + bytes.fromhex(blob)
    tree = git(repository.path, "hash-object", "-t", "tree", "--literally", "-w", "--stdin", source=raw)
    commit = git(repository.path, "commit-tree", tree, "-m", "evil")
    git(repository.path, "update-ref", "refs/heads/main", commit)
    workload = scene.submit()
    scene.fetch()
    workload.refresh_from_db()
    assert workload.phase == "failed"
    assert workload.message == "The commit has a path with more than 1,024 characters. Shorten it."


@pytest.mark.heavy
def test_long_default_branch_name_is_omitted(scene: Scene, repository: Repository) -> None:
    name = "a" * 200 + "/" + "b" * 100
    git(repository.path, "branch", name, "main")
    git(repository.path, "symbolic-ref", "HEAD", f"refs/heads/{name}")
    workload = scene.submit()
    scene.fetch()
    assert b"print(1)\n" in contents(workload)
    assert CodeFetch.objects.get().branch == ""


@pytest.mark.heavy
def test_former_leader_does_not_overwrite_the_fetched_commit(scene: Scene, repository: Repository) -> None:
    workload = scene.submit(git={"ref": "main"})
    assert scene.fetcher.run_once()
    wait([running.result for running in scene.fetcher._running.values()])
    repository.commit({"train.py": "print(2)\n"})
    expired = {"holder": "other", "expires_at": "2000-01-01T00:00Z"}
    Lease.objects.filter(name="code").update(**expired)
    former, scene.fetcher = scene.fetcher, scene.new_fetcher()
    scene.fetch()
    assert b"print(2)\n" in contents(workload)
    Lease.objects.filter(name="code").update(**expired)
    former.run_once()
    assert b"print(2)\n" in contents(workload)


@pytest.mark.parametrize(
    "url",
    [
        "https://[:::::]/x", "https://[1:2]/x", "https://ghp_0123456789@git.example.org/o/r",
        "user:pass@git.example.org:o/r",
    ],
)  # fmt: skip
def test_git_url_with_a_token_or_an_invalid_ip_address_is_rejected(scene: Scene, url: str) -> None:
    with pytest.raises(Invalid) as rejected:
        scene.submit(git={"url": url, "secret": None})
    assert "ghp_0123456789" not in str(rejected.value.problems)
    assert "pass@" not in str(rejected.value.problems)


@pytest.mark.heavy
def test_ssh_address_without_a_key_is_rejected_without_echoing_the_git_section(scene: Scene) -> None:
    with pytest.raises(Invalid) as rejected:
        scene.submit(git={"url": "git@git.example.org:o/r"})
    (problem,) = rejected.value.problems
    assert (problem.message, problem.received) == ("uses an SSH address without a key", "")
