"""Tests for workloads with code from a Git server, from the submission to the first pod."""

from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from berth.core.errors import Invalid
from pools.services.secrets import SecretContent
from projects.code.collector import prune_code_store
from projects.code.git.installation import git_policy, scratch_base
from projects.code.stores import open_store
from projects.models import CodeFetch, CodeTree, SecretUse, Workload
from projects.services import arrays, workloads
from projects.services.code import WorkloadCode, describe_code, read_tree
from projects.services.code_fetches import delete_unused_fetches
from projects.services.code_results import ATTEMPTS
from projects.services.secrets import set_personal_secret, set_project_secret
from scheduler.code import CodeFetcher
from tests.code.git_server import HttpsServer, Repository, git, https_server, new_repository
from tests.scheduler.stage import Stage
from tests.support.crashes import Killed, killed_at
from tests.support.present import present

ONE = [{"name": "worker", "replicas": 1}]
TOKEN = "token-of-the-robot"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = new_repository(tmp_path / "repositories")
    repository.commit({"train.py": "print(1)\n"})
    return repository


@pytest.fixture
def server(tmp_path: Path, repository: Repository, settings: Any) -> Iterator[HttpsServer]:
    settings.BERTH_CODE_STORE = str(tmp_path / "code")
    settings.BERTH_LOCAL_URL = "http://127.0.0.1:8000"
    settings.BERTH_HOME = tmp_path
    with https_server(tmp_path / "https", repository.path.parent) as server:
        settings.BERTH_GIT_HOSTS = [f"127.0.0.1:{server.port}"]
        settings.BERTH_GIT_CA = str(server.ca_file)
        yield server


class Scene:
    """A stage with a scheduler, and a thread that fetches code."""

    def __init__(self, stage: Stage, server: HttpsServer) -> None:
        self.stage, self.server = stage, server
        self.fetcher = self.new_fetcher()

    def new_fetcher(self, leads: bool = True) -> CodeFetcher:
        return CodeFetcher(self.stage.clock, git_policy, scratch_base(), 4, lambda: leads)

    def submit(self, name: str = "train", **changes: Any) -> Workload:
        section = {"url": self.server.url(), **changes.pop("git", {})}
        return self.stage.submit(name, roles=ONE, code={"git": section}, **changes)

    def fetch(self) -> None:
        """Start the due fetches, and record their results once they have arrived."""
        assert self.fetcher.run_once()
        wait([running.result for running in self.fetcher._running.values()])
        assert self.fetcher.run_once()


@pytest.fixture
def scene(stage: Stage, server: HttpsServer) -> Scene:
    return Scene(stage, server)


def blockers(workload: Workload) -> list[tuple[str, str]]:
    workload.refresh_from_db()
    return [(each["reason"], each["message"]) for each in present(workload.explanation)["blockers"]]


def code_of(workload: Workload) -> WorkloadCode:
    return present(describe_code(Workload.objects.get(pk=workload.pk)))


def contents(workload: Workload) -> bytes:
    workload.refresh_from_db()
    return b"".join(read_tree(present(workload.code))[1])


def test_workload_stays_pending_until_its_code_is_fetched(scene: Scene, repository: Repository) -> None:
    workload = scene.submit()
    scene.stage.tick(2)
    assert scene.stage.phase(workload) == "pending"
    assert blockers(workload) == [("FetchingCode", f"Fetching code from {scene.server.url()}.")]
    scene.fetch()
    scene.stage.tick(2)
    assert scene.stage.phase(workload) == "running"
    assert b"print(1)\n" in contents(workload)
    code = code_of(workload)
    assert (code.commit, code.branch) == (git(repository.checkout, "rev-parse", "HEAD"), "main")
    git_code = present(code.git)
    assert (git_code.url, git_code.ref, git_code.state) == (scene.server.url(), None, "fetched")


@pytest.mark.heavy
def test_all_restarts_use_the_same_commit(scene: Scene, repository: Repository) -> None:
    workload = scene.submit(git={"ref": "main"}, retry=[{"on": [1], "max": 2}])
    scene.fetch()
    scene.stage.tick(2)
    commit = code_of(workload).commit
    repository.commit({"train.py": "print(2)\n"})
    scene.stage.finish(workload, 1)
    scene.stage.tick(3)
    scene.stage.clock.advance(600)
    scene.stage.tick(3)
    workloads.suspend(actor=scene.stage.cast.alice, workload=workload)
    scene.stage.tick(3)
    workloads.resume(actor=scene.stage.cast.alice, workload=workload)
    scene.fetch()
    scene.stage.tick(2)
    assert workload.run < Workload.objects.get(pk=workload.pk).run
    assert b"print(1)\n" in contents(workload)
    assert code_of(workload).commit == commit


@pytest.mark.heavy
def test_all_tasks_of_an_array_and_their_retries_use_the_same_commit(
    scene: Scene, repository: Repository
) -> None:
    document = {
        "name": "sweep", "project": "vision", "command": "true", "roles": ONE, "array": {"tasks": 3},
        "code": {"git": {"url": scene.server.url()}},
    }  # fmt: skip
    alice = scene.stage.cast.alice
    array = arrays.submit(actor=alice, document=document, now=scene.stage.clock.now()).array
    scene.stage.tick(2)
    scene.fetch()
    assert CodeFetch.objects.count() == 1
    scene.stage.tick(3)
    (code,) = {task.code_id for task in Workload.objects.filter(array=array)}
    task = Workload.objects.get(array=array, array_index=1)
    assert scene.stage.phase(task) == "running"
    scene.stage.finish(task, 1)
    scene.stage.tick(3)
    repository.commit({"train.py": "print(2)\n"})
    assert arrays.retry(actor=alice, array=array, now=scene.stage.clock.now()) == 1
    again = Workload.objects.get(array=array, array_index=1, superseded=False)
    assert (again.attempt, again.code_id, again.code_wait) == (2, code, "")


@pytest.mark.heavy
def test_identical_files_are_stored_once(scene: Scene) -> None:
    first, second = scene.submit("one"), scene.submit("two", git={"ref": "main"})
    scene.fetch()
    for workload in (first, second):
        workload.refresh_from_db()
    assert first.code_id == second.code_id is not None
    assert CodeTree.objects.count() == 1


@pytest.mark.heavy
@pytest.mark.parametrize("personal", [False, True])
def test_secret_version_used_to_fetch_the_code_is_recorded(scene: Scene, personal: bool) -> None:
    cast, now = scene.stage.cast, scene.stage.clock.now()
    scene.server.token = TOKEN
    content = SecretContent(TOKEN)
    if personal:
        set_personal_secret(actor=cast.alice, name="robot", content=content, at=now)
    else:
        set_project_secret(actor=cast.alice, project=cast.vision, name="robot", content=content, at=now)
    workload = scene.submit(git={"secret": "robot", "personal": personal})
    scene.fetch()
    use = SecretUse.objects.get(workload=workload)
    assert (use.name, use.version) == ("robot", 1)
    assert present(code_of(workload).git).secret_version == 1
    scene.stage.tick(2)
    (pod,) = scene.stage.pods(workload, "running")
    assert TOKEN not in repr(asdict(scene.stage.runtime.order(str(pod.pk))))


def test_submission_is_rejected_if_its_code_can_never_be_fetched(scene: Scene, settings: Any) -> None:
    with pytest.raises(Invalid, match=r"code\.git\.secret: is not a secret of vision"):
        scene.submit(git={"secret": "robot"})
    with pytest.raises(Invalid, match=r"code\.git\.secret: is not one of your personal secrets"):
        scene.submit(git={"secret": "robot", "personal": True})
    for host in ("localhost", "127.0.0.1", "[::1]", "169.254.169.254"):
        with pytest.raises(Invalid, match=r"code\.git\.url: cannot be reached.*BERTH_GIT_HOSTS"):
            scene.submit(git={"url": f"https://{host}/train.git"})
    settings.BERTH_GIT_FETCHES = 0
    with pytest.raises(Invalid, match=r"code\.git: cannot be used: this installation fetches no code"):
        scene.submit()
    assert not Workload.objects.exists()


def test_workload_fails_with_the_reason_if_its_code_cannot_be_fetched(scene: Scene) -> None:
    workload = scene.submit(git={"ref": "nightly"})
    scene.fetch()
    assert scene.stage.phase(workload) == "failed"
    assert workload.reason == "CodeFetchFailed"
    assert workload.message.startswith(f"{scene.server.url()} has no branch or tag nightly.")
    assert CodeFetch.objects.get().state == "failed"


@pytest.mark.heavy
def test_code_fetch_is_repeated_after_a_failure_until_the_last_attempt(scene: Scene, settings: Any) -> None:
    settings.BERTH_GIT_CA = ""
    workload = scene.submit()
    scene.fetch()
    scene.stage.tick()
    ((reason, message),) = blockers(workload)
    assert reason == "FetchingCode"
    assert "could not be verified" in message
    assert message.endswith("Berth tries again.")
    for _ in range(ATTEMPTS):
        scene.stage.clock.advance(600)
        scene.fetch()
    assert scene.stage.phase(workload) == "failed"
    assert "Berth tried 6 times" in workload.message


@pytest.mark.heavy
def test_suspended_workload_requests_its_code_again_when_it_is_resumed(
    scene: Scene, repository: Repository
) -> None:
    document = {"ref": "nightly"}
    pending, suspended = scene.stage.cast, scene.submit("asleep", git=document)
    scene.fetcher.run_once()
    workloads.suspend(actor=pending.alice, workload=suspended)
    wait([running.result for running in scene.fetcher._running.values()])
    scene.fetcher.run_once()
    assert scene.stage.phase(suspended) == "suspended"
    git(repository.checkout, "checkout", "--quiet", "-b", "nightly")
    repository.commit({"x": "x"})
    workloads.resume(actor=pending.alice, workload=suspended)
    scene.fetch()
    scene.stage.tick(2)
    assert scene.stage.phase(suspended) == "running"


@pytest.mark.heavy
def test_code_of_a_cancelled_workload_is_not_fetched(scene: Scene) -> None:
    workload = scene.submit()
    workloads.cancel(actor=scene.stage.cast.alice, workload=workload)
    scene.fetch()
    assert scene.server.requests == []


@pytest.mark.heavy
def test_workload_edit_keeps_the_git_commit_unless_it_changes_the_code(
    scene: Scene, repository: Repository
) -> None:
    workload = scene.submit()
    alice = scene.stage.cast.alice
    scene.fetch()
    workload.refresh_from_db()
    before = workload.code_id
    repository.commit({"train.py": "print(2)\n"})
    workloads.edit(actor=alice, workload=workload, patch={"priority": 60})
    scene.fetch()
    workload.refresh_from_db()
    assert (workload.code_id, workload.code_wait) == (before, "")
    workloads.edit(actor=alice, workload=workload, patch={"code": {"git": {"ref": "main"}}})
    workload.refresh_from_db()
    assert workload.code_wait
    scene.fetch()
    workload.refresh_from_db()
    assert workload.code_id not in (before, None)


@pytest.mark.heavy
@pytest.mark.parametrize("point", ["code.chunks_stored", "code.fetched"])
def test_interrupted_fetch_is_repeated_after_a_crash(scene: Scene, point: str) -> None:
    workload = scene.submit()

    with killed_at(point):
        scene.fetch()
        if point == "code.chunks_stored":
            raise Killed
    assert CodeFetch.objects.get().state == "waiting"
    scene.stage.clock.advance(600)
    scene.fetcher = scene.new_fetcher()
    scene.fetch()
    scene.stage.tick(2)
    assert scene.stage.phase(workload) == "running"
    assert CodeTree.objects.count() == 1


@pytest.mark.heavy
def test_each_project_fetches_at_most_two_commits_at_a_time(scene: Scene) -> None:
    for name in ("one", "two", "three"):
        scene.submit(name, git={"directory": f"dir-{name}"})
    assert scene.fetcher.run_once()
    assert len(scene.fetcher._running) == 2


def test_only_the_leader_fetches_code(scene: Scene) -> None:
    scene.submit()
    assert not scene.new_fetcher(leads=False).run_once()


@pytest.mark.heavy
def test_unneeded_code_and_fetch_requests_are_deleted(scene: Scene) -> None:
    workload = scene.submit()
    scene.fetch()
    scene.stage.tick(2)
    later = scene.stage.clock.now() + timedelta(days=40)
    prune_code_store(open_store(), later, retention=timedelta(days=30))
    assert CodeTree.objects.exists()
    assert delete_unused_fetches(later) == 0
    scene.stage.finish(workload)
    scene.stage.tick(2)
    prune_code_store(open_store(), later, retention=timedelta(days=30))
    assert not CodeTree.objects.exists()
    assert CodeFetch.objects.get().commit
    Workload.objects.all().delete()
    assert delete_unused_fetches(later) == 1
