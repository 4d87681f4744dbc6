"""Tests that pods write to their own copy of an S3 volume, and that nodes track the changes."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from pools.runtimes.base import PodReport, PodSpec, PodState, VolumeMount
from pools.runtimes.files.base import FilesNotFound, VolumeChanges
from tests.contracts.pods import LocalStage, ended, poll_until
from tests.volumes.object_store import ObjectStore, SigningServer

OBJECTS = {"set/one": b"1\n", "set/deep/two": b"2\n", "set/three": b"3\n"}


@pytest.fixture
def server(store: ObjectStore, request: pytest.FixtureRequest) -> Iterator[SigningServer]:
    name = f"writable-{abs(hash(request.node.nodeid))}"
    store.fill(name, OBJECTS)
    server = SigningServer(store.volume(f"s3://{name}/set", access="read_write"))
    yield server
    server.close()


def writable(server: SigningServer, pod_id: str, script: str) -> PodSpec:
    volume = server.volume
    mount = VolumeMount("data", volume.source, "/data", is_writable=True, cache=volume.cache)
    return server.order(pod_id, script, volumes=(mount,))


def finished(stage: LocalStage, server: SigningServer, script: str, pod_id: str = "p-1") -> PodReport:
    stage.runtime.start(writable(server, pod_id, script))
    return ended(stage.runtime, pod_id)


def changes(stage: LocalStage, pod_id: str = "p-1") -> VolumeChanges:
    return stage.runtime.list_volume_changes(pod_id, "data")


def read(stage: LocalStage, path: str) -> bytes:
    return stage.runtime.read_volume_file("p-1", "data", path, 0, 100)


def test_node_lists_changed_new_and_deleted_files(stage: LocalStage, server: SigningServer) -> None:
    script = (
        "cd /data && cat one && echo more >> one && rm three && mkdir -p new/er && echo n > new/er/file "
        "&& touch -d 2001-01-01 new/old && mv deep/two deep/moved"
    )
    report = finished(stage, server, script)
    assert report.exit_code == 0, report
    listed = changes(stage)
    assert {file.path: file.size for file in listed.files} == {
        "one": 7, "new/er/file": 2, "new/old": 0, "deep/moved": 2,
    }  # fmt: skip
    etags = {entry["path"]: entry["etag"] for entry in server.list_objects("")["objects"]}
    assert set(listed.deleted) == {("three", etags["three"]), ("deep/two", etags["deep/two"])}
    assert read(stage, "one") == b"1\nmore\n"


def test_files_that_were_only_read_are_not_listed_as_changed(
    stage: LocalStage, server: SigningServer
) -> None:
    assert finished(stage, server, "cat /data/one /data/deep/two && ls -lR /data").exit_code == 0
    assert changes(stage) == VolumeChanges()


def test_pod_writes_are_invisible_to_other_pods(stage: LocalStage, server: SigningServer) -> None:
    assert finished(stage, server, "echo mine > /data/one && rm /data/three").exit_code == 0
    assert finished(stage, server, "cat /data/one /data/three", "p-2").exit_code == 0
    assert stage.runtime.read_log("p-2", 0, 100).data == b"1\n3\n"
    assert sorted(server.signed) == ["deep/two", "one", "three"], "each object was fetched once"


def test_links_in_a_volume_are_omitted_and_not_followed(stage: LocalStage, server: SigningServer) -> None:
    links = "ln -s /etc/passwd link && echo x > hard && ln hard hard2"
    script = f"cd /data && {links} && rm -r deep && ln -s /etc deep"
    assert finished(stage, server, script).exit_code == 0
    listed = changes(stage)
    assert listed.files == ()
    assert {path for path, _ in listed.deleted} == {"deep/two"}
    assert listed.skipped == {
        "link": "is a symbolic link", "deep": "is a symbolic link",
        "hard": "has several hard links", "hard2": "has several hard links",
    }  # fmt: skip
    for path in ("link", "deep/passwd", "../one", "", "/etc/passwd", "../data.copied"):
        with pytest.raises(FilesNotFound):
            read(stage, path)


def test_pod_can_start_with_an_empty_volume(
    stage: LocalStage, server: SigningServer, store: ObjectStore
) -> None:
    server.volume = store.volume(f"s3://{server.volume.bucket}/fresh", access="read_write")
    report = finished(stage, server, 'test -z "$(ls /data)" && echo first > /data/result')
    assert report.exit_code == 0, report
    assert [file.path for file in changes(stage).files] == ["result"]


def test_pod_that_never_started_has_no_volume_changes(stage: LocalStage, server: SigningServer) -> None:
    server.status = 403
    server.volume = server.volume.__class__(
        "data", "s3://missing-bucket/set", endpoint=server.volume.endpoint
    )
    assert finished(stage, server, "echo x > /data/x").exit_code != 0
    assert changes(stage) == VolumeChanges()


def test_files_no_longer_exist_once_the_pod_is_forgotten(stage: LocalStage, server: SigningServer) -> None:
    assert finished(stage, server, "echo x > /data/x").exit_code == 0
    stage.runtime.forget("p-1")
    with pytest.raises(FilesNotFound):
        changes(stage)


def test_pod_waits_until_the_changes_of_earlier_pods_are_stored(
    stage: LocalStage, server: SigningServer
) -> None:
    real = server.list_objects
    requests: list[str] = []

    def list_objects(after: str) -> dict[str, Any]:
        requests.append(after)
        if len(requests) == 1:
            waiting_for = "waiting until the changes that the pod worker-0 of first made are stored"
            return {"objects": [], "next": "", "size_max": 0, "waiting_for": waiting_for}
        return real(after)

    server.list_objects = list_objects  # type: ignore[method-assign]
    stage.runtime.start(writable(server, "p-1", "cat /data/one"))
    poll_until(
        lambda: "worker-0 of first" in stage.runtime.get_reports(["p-1"])["p-1"].progress or len(requests) > 1
    )
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert stage.runtime.read_log("p-1", 0, 100).data == b"1\n"


@pytest.mark.heavy
def test_interrupted_fetch_is_repeated_and_leaves_no_partial_files(
    stage: LocalStage, server: SigningServer
) -> None:
    real = server.list_objects
    hangs: list[str] = []

    def list_objects(after: str) -> dict[str, Any]:
        if not hangs:
            hangs.append(after)
            return {"objects": [], "next": "", "size_max": 0, "waiting_for": "waiting for others"}
        return real(after)

    server.list_objects = list_objects  # type: ignore[method-assign]
    sent = writable(server, "p-1", "echo x > /data/x")
    stage.runtime.start(sent)
    poll_until(lambda: hangs)
    stage.restart()
    os.kill(poll_until(lambda: stage.runtime._pod_dir("p-1").shim_pid() or 0), signal.SIGKILL)
    poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"].state == PodState.UNKNOWN)
    draft = stage.root / "pods" / "p-1" / "volumes" / "data.new"
    draft.mkdir(parents=True, exist_ok=True)
    (draft / "remains").write_text("of the copy")
    stage.runtime.start(sent)
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert [file.path for file in changes(stage).files] == ["x"]
