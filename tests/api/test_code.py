"""Tests for uploading the code of workloads over REST."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from berth.core.frames import CONTENT_TYPE, pack_frames
from berth.core.spec.sections.code import CHUNK_BYTES
from pools.joining import secrets
from projects.code.collector import prune_code_store
from projects.code.disk import DiskStore
from projects.models import CodeChunk, CodeTree, Pod, Workload
from tests.api.conftest import Caller
from tests.cast import Cast, training
from tests.code.small_disk import small_disk
from tests.factories import node, place

TREE, CHUNKS = "projects/vision/code/tree", "projects/vision/code/chunks"


@pytest.fixture(autouse=True)
def store(settings: Any, tmp_path: Path) -> DiskStore:
    settings.BERTH_CODE_STORE = str(tmp_path / "code")
    settings.BERTH_LOCAL_URL = "http://127.0.0.1:8000"
    return DiskStore(tmp_path / "code")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def split(content: bytes) -> list[bytes]:
    return [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]


def entry(path: str, content: bytes = b"", **more: Any) -> dict[str, Any]:
    return {"path": path, "size": len(content), "chunks": [digest(part) for part in split(content)], **more}


def frames(*contents: bytes) -> tuple[str, bytes]:
    return CONTENT_TYPE, pack_frames([({"digest": digest(content)}, content) for content in contents])


def upload(user: Caller, files: dict[str, bytes], project: str = "vision") -> str:
    place = f"projects/{project}/code"
    entries = [entry(path, content) for path, content in files.items()]
    answer = user("PUT", f"{place}/tree", {"files": entries})
    assert answer.status_code == 200, answer.content
    missing = answer.json()["missing"]
    if missing:
        parts = {digest(part): part for content in files.values() for part in split(content)}
        assert user("PUT", f"{place}/chunks", frames(*(parts[each] for each in missing))).status_code == 204
        answer = user("PUT", f"{place}/tree", {"files": entries})
    assert answer.json()["missing"] == []
    return str(answer.json()["tree"])


def submit(user: Caller, tree: str, name: str = "train", project: str = "vision") -> Any:
    return user.post("workloads", training(name, project=project) | {"code": {"tree": tree}})


def read_archive(answer: Any) -> dict[str, bytes]:
    content = b"".join(answer.streaming_content)
    assert len(content) == int(answer["Content-Length"])
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive if each.isreg()}  # type: ignore[union-attr]


def test_second_upload_requires_only_the_changed_files(dave: Caller) -> None:
    upload(dave, {"a.py": b"one", "b.py": b"two"})
    changed = [entry("a.py", b"one"), entry("b.py", b"three")]
    assert dave("PUT", TREE, {"files": changed}).json()["missing"] == [digest(b"three")]


def test_interrupted_upload_continues_with_the_missing_chunks(dave: Caller) -> None:
    files = [entry("a.py", b"one"), entry("b.py", b"two")]
    assert len(dave("PUT", TREE, {"files": files}).json()["missing"]) == 2
    assert dave("PUT", CHUNKS, frames(b"two")).status_code == 204
    assert dave("PUT", TREE, {"files": files}).json()["missing"] == [digest(b"one")]


@pytest.mark.heavy
def test_multi_chunk_file_is_returned_in_full(dave: Caller) -> None:
    content = b"x" * CHUNK_BYTES + b"end"
    workload = submit(dave, upload(dave, {"weights.bin": content, "sub/empty": b""})).json()
    assert (workload["code"]["files"], workload["code"]["size"]) == (2, len(content))
    archive = dave.get(f"workloads/{workload['id']}/code")
    assert read_archive(archive) == {"weights.bin": content, "sub/empty": b""}


def test_knowing_a_digest_gives_no_access_to_another_projects_code(
    dave: Caller, caller: Callable[..., Caller]
) -> None:
    grace = caller("grace")
    tree = upload(dave, {"a.py": b"secret"})
    rejected = submit(grace, tree, project="ads")
    assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (422, "code.tree")
    missing = grace("PUT", "projects/ads/code/tree", {"files": [entry("a.py", b"secret")]}).json()["missing"]
    assert missing == [digest(b"secret")], "the content must be sent to the other project too"
    assert grace("PUT", TREE, {"files": [entry("a.py", b"secret")]}).status_code == 404


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"path": "../a"}], "outside the tree"),
        ([{"path": "/etc/passwd"}], "outside the tree"),
        ([{"path": "a//b"}], "not a normalized path"),
        ([{"path": "a\ud800"}], "files[0].path"),
        ([{"path": "a\0"}], "not a UTF-8 path"),
        ([{"path": "a", "link": "/etc"}], "leads out of the tree"),
        ([{"path": "d/a", "link": "../../etc"}], "leads out of the tree"),
        ([{"path": "a", "link": "b/../../c"}], "leads out of the tree"),
        ([{"path": "a"}, {"path": "a"}], "occurs twice"),
        ([{"path": "a", "link": "b"}, {"path": "a/x"}], "is not a directory"),
        ([{"path": "a"}, {"path": "a-b"}, {"path": "a/d/x"}, {"path": "a.c"}], "is below a, which"),
        ([{"path": "a", "size": 5}], "do not match the size"),
        ([], "is empty"),
    ],
)
def test_invalid_files_are_rejected(dave: Caller, entries: list[Any], message: str) -> None:
    answer = dave("PUT", TREE, {"files": entries})
    assert answer.status_code == 422
    assert message in answer.json()["detail"]
    assert not CodeTree.objects.exists()


@pytest.mark.heavy
def test_oversized_code_upload_is_rejected_with_a_list_of_large_files(dave: Caller, settings: Any) -> None:
    settings.BERTH_CODE_MIB, settings.BERTH_CODE_FILES = 1, 2
    large = {"path": "data.bin", "size": 2**31, "chunks": [digest(b"")] * 512}
    answer = dave("PUT", TREE, {"files": [large, entry("a.py", b"one")]})
    assert answer.status_code == 422
    assert "data.bin (2048.0 MiB)" in answer.json()["detail"]
    assert ".berthignore" in answer.json()["detail"]
    many = dave("PUT", TREE, {"files": [entry(f"{number}.py") for number in range(3)]})
    assert "too many files" in many.json()["detail"]


def test_chunk_with_a_wrong_digest_is_rejected(dave: Caller) -> None:
    body = CONTENT_TYPE, pack_frames([({"digest": digest(b"one")}, b"changed")])
    answer = dave("PUT", CHUNKS, body)
    assert (answer.status_code, "SHA-256" in answer.json()["detail"]) == (422, True)
    assert not CodeChunk.objects.exists()


@pytest.mark.heavy
def test_declared_size_must_match_the_chunks(dave: Caller) -> None:
    dave("PUT", CHUNKS, frames(b"one"))
    lie = {"path": "a", "size": 1, "chunks": [digest(b"one")]}
    assert dave("PUT", TREE, {"files": [lie]}).status_code == 422


def test_code_storage_per_project_is_limited(dave: Caller, settings: Any) -> None:
    settings.BERTH_CODE_PROJECT_MIB = 0
    answer = dave("PUT", CHUNKS, frames(b"one"))
    assert (answer.status_code, "project vision already stores 0.0 MiB" in answer.json()["detail"]) == (
        409,
        True,
    )


@pytest.mark.heavy
def test_file_lists_count_towards_the_storage_limit(dave: Caller, settings: Any) -> None:
    settings.BERTH_CODE_PROJECT_MIB = 1
    settings.BERTH_CODE_FILES = 10_000
    for number in range(20):
        names = (hashlib.sha256(f"{number} {each}".encode()).hexdigest() for each in range(5000))
        answer = dave("PUT", TREE, {"files": [entry(name) for name in names]})
        if answer.status_code != 200:
            break
    assert number > 0
    assert (answer.status_code, "its limit is 1.0 MiB" in answer.json()["detail"]) == (409, True)


def test_workload_with_code_is_rejected_in_a_pool_that_cannot_receive_code(
    dave: Caller, settings: Any
) -> None:
    tree = upload(dave, {"a.py": b"one"})
    settings.BERTH_LOCAL_URL = settings.BERTH_PUBLIC_URL = ""
    answer = submit(dave, tree)
    assert answer.status_code == 422
    assert "BERTH_PUBLIC_URL is not set" in answer.json()["detail"]


def test_local_path_in_a_document_is_rejected_with_a_hint(dave: Caller) -> None:
    answer = dave.post("workloads", training(project="vision") | {"code": "."})
    assert (answer.status_code, "`berth submit --code DIR`" in answer.json()["detail"]) == (422, True)


def test_node_can_download_code_only_for_its_live_pod(cast: Cast, dave: Caller) -> None:
    tree = upload(dave, {"a.py": b"one"})
    workload = Workload.objects.get(pk=submit(dave, tree).json()["id"])
    pods = [place(workload, node(cast.pool), [], state="starting") for _ in range(2)]
    pod, other = pods
    agent = Caller(secrets.download_secret(str(pod.pk)))
    assert read_archive(agent.get(f"pods/{pod.pk}/code")) == {"a.py": b"one"}
    for wrong in (
        Caller(),
        Caller(secrets.pod_secret(str(pod.pk))),
        Caller(secrets.download_secret(str(other.pk))),
    ):
        assert wrong.get(f"pods/{pod.pk}/code").status_code == 401
    Pod.objects.filter(pk=pod.pk).update(state="succeeded", ended_at=timezone.now())
    assert agent.get(f"pods/{pod.pk}/code").status_code == 401


def test_only_unused_code_is_deleted(dave: Caller, store: DiskStore) -> None:
    needed, ended, unused = (upload(dave, {"a.py": name, "b.py": b"same"}) for name in (b"1", b"2", b"3"))
    submit(dave, needed)
    old = Workload.objects.get(pk=submit(dave, ended, "old").json()["id"])
    now = timezone.now() + timedelta(days=10)
    Workload.objects.filter(pk=old.pk).update(phase="completed", ended_at=timezone.now())
    assert prune_code_store(store, now, retention=timedelta(days=30)) == 2, "one tree and one chunk"
    assert set(CodeTree.objects.values_list("digest", flat=True)) == {needed, ended}
    assert unused not in (needed, ended)
    prune_code_store(store, now, retention=timedelta(days=5))
    assert set(CodeChunk.objects.values_list("digest", flat=True)) == {digest(b"1"), digest(b"same")}
    assert len(list(store.keys(before=now))) == 2
    shown = dave.get(f"workloads/{old.pk}").json()["code"]
    assert (shown["tree"], shown["is_stored"], shown["files"]) == (ended, False, None)
    assert dave.get(f"workloads/{old.pk}/code").status_code == 409


@pytest.mark.heavy
def test_upload_or_submission_protects_old_code_from_deletion(dave: Caller, store: DiskStore) -> None:
    files = {"a.py": b"one"}
    tree = upload(dave, files)
    uses: list[Callable[[], Any]] = [lambda: upload(dave, files), lambda: submit(dave, tree)]
    for use in uses:
        CodeTree.objects.update(used_at=timezone.now() - timedelta(days=3))
        CodeChunk.objects.update(used_at=timezone.now() - timedelta(days=3))
        use()
        prune_code_store(store, timezone.now(), retention=timedelta())
        assert (CodeTree.objects.count(), CodeChunk.objects.count()) == (1, 1)


def test_deleting_a_project_deletes_its_code_files(
    dave: Caller, caller: Callable[..., Caller], store: DiskStore
) -> None:
    upload(dave, {"a.py": b"one"})
    assert caller("alice")("DELETE", "projects/vision").status_code == 204
    later = timezone.now() + timedelta(days=2)
    prune_code_store(store, later, retention=timedelta())
    assert list(store.keys(before=later)) == []


@pytest.mark.heavy
def test_files_of_a_killed_upload_are_deleted(dave: Caller, store: DiskStore) -> None:
    tree = upload(dave, {"a.py": b"one"})
    submit(dave, tree)
    store.write({"1/5b6f7a3e-3a3c-4f6e-9a5e-0d6d3f1f7b11": b"without a row"})
    later = timezone.now() + timedelta(days=2)
    prune_code_store(store, timezone.now(), retention=timedelta())
    assert len(list(store.keys(before=later))) == 2, "an upload may still be in progress"
    prune_code_store(store, later, retention=timedelta())
    assert len(list(store.keys(before=later))) == 1


def test_damaged_chunk_aborts_the_download(dave: Caller, store: DiskStore, tmp_path: Path) -> None:
    workload = submit(dave, upload(dave, {"a.py": b"one"})).json()
    (path,) = (tmp_path / "code").glob("*/*")
    path.write_bytes(b"two")
    with pytest.raises(Exception, match="damaged"):
        read_archive(dave.get(f"workloads/{workload['id']}/code"))
    CodeChunk.objects.filter(digest=digest(b"one")).delete()  # as in the guide for admins
    upload(dave, {"a.py": b"one"})
    assert read_archive(dave.get(f"workloads/{workload['id']}/code")) == {"a.py": b"one"}


@pytest.mark.heavy
def test_verified_download_names_a_damaged_or_missing_chunk(
    cast: Cast, dave: Caller, store: DiskStore, tmp_path: Path
) -> None:
    workload = Workload.objects.get(pk=submit(dave, upload(dave, {"a.py": b"one"})).json()["id"])
    pod = place(workload, node(cast.pool), [], state="starting")
    agent, route = Caller(secrets.download_secret(str(pod.pk))), f"pods/{pod.pk}/code?verify=true"
    assert read_archive(agent.get(route)) == {"a.py": b"one"}
    (path,) = (tmp_path / "code").glob("*/*")
    path.write_bytes(b"two")
    answer = agent.get(route)
    assert (answer.status_code, "is damaged. Contact an admin." in answer.json()["detail"]) == (409, True)
    path.unlink()
    assert agent.get(route).status_code == 409


def test_upload_to_a_full_disk_returns_an_error_and_stores_nothing(
    dave: Caller, tmp_path: Path, settings: Any
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        settings.BERTH_CODE_STORE = str(disk / "code")
        answer = dave("PUT", CHUNKS, frames(b"small", b"x" * 200_000))
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "No space left on device" in answer.json()["detail"]
        assert not CodeChunk.objects.exists()
        assert dave("PUT", CHUNKS, frames(b"small")).status_code == 204, "the failed upload left space"


@pytest.mark.heavy
def test_edit_keeps_or_replaces_the_code_of_a_workload(dave: Caller) -> None:
    first, second = upload(dave, {"a.py": b"one"}), upload(dave, {"a.py": b"two"})
    workload = submit(dave, first).json()
    edited = dave("PATCH", f"workloads/{workload['id']}", {"priority": 60})
    assert (edited.status_code, edited.json()["code"]["tree"]) == (200, first)
    edited = dave("PATCH", f"workloads/{workload['id']}", {"code": {"tree": second}})
    assert edited.json()["code"]["is_stored"]
    assert read_archive(dave.get(f"workloads/{workload['id']}/code")) == {"a.py": b"two"}


@pytest.mark.heavy
def test_all_tasks_of_an_array_use_the_same_code(dave: Caller, caller: Callable[..., Caller]) -> None:
    tree = upload(dave, {"a.py": b"one"})
    document = training("sweep", project="vision") | {"array": {"tasks": 3}, "code": {"tree": tree}}
    assert dave.post("arrays", document).status_code == 201
    assert set(Workload.objects.values_list("code__digest", flat=True)) == {tree}
