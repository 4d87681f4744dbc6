"""Tests that the shims of local pods fetch volumes from S3, with real processes and an object store."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pools.runtimes.base import PodCause, PodReport, PodState
from tests.code.small_disk import small_disk
from tests.contracts.pods import LocalStage, ended, files_containing, poll_until, running
from tests.volumes.object_store import KEY, SECRET, ObjectStore, SigningServer, answering

SEE = "cd /data && find . -type f | sort && cat $(find . -type f | sort)"


@pytest.fixture
def server(store: ObjectStore, request: pytest.FixtureRequest) -> Iterator[SigningServer]:
    """Serve a separate bucket with a few objects."""
    name = f"bucket-{abs(hash(request.node.nodeid))}"
    store.fill(name, {"set/one": b"1\n", "set/deep/er/two": b"2\n", "set-aside": b"3\n", "set/empty/": b""})
    server = SigningServer(store.volume(f"s3://{name}/set"))
    yield server
    server.close()


def finished(
    stage: LocalStage, server: SigningServer, pod_id: str, script: str = SEE, **changes: Any
) -> PodReport:
    stage.runtime.start(server.order(pod_id, script, **changes))
    return ended(stage.runtime, pod_id)


def log(stage: LocalStage, pod_id: str) -> list[str]:
    return str(stage.runtime.read_log(pod_id, 0, 10_000).data.decode()).split()


def put(store: ObjectStore, server: SigningServer, key: str, content: bytes) -> None:
    store.client.put_object(Bucket=server.volume.bucket, Key=key, Body=content)


def cached(stage: LocalStage) -> list[Path]:
    return [path for path in (stage.root / "volumes").rglob("*") if path.is_file() and path.name != ".lock"]


@pytest.mark.heavy
def test_pod_reads_the_objects_below_the_prefix_but_cannot_change_them(
    stage: LocalStage, server: SigningServer
) -> None:
    script = f"{SEE}; (echo x > /data/one || rm /data/one || touch /data/new) 2> /dev/null || echo refused"
    assert finished(stage, server, "p-1", script).exit_code == 0
    assert log(stage, "p-1") == ["./deep/er/two", "./one", "2", "1", "refused"]
    assert [path.read_bytes() for path in sorted(cached(stage), key=lambda each: each.read_bytes())] == [
        b"1\n", b"2\n",
    ]  # fmt: skip


def test_next_pod_fetches_only_changed_objects_and_earlier_pods_keep_their_files(
    stage: LocalStage, server: SigningServer, store: ObjectStore
) -> None:
    wait = 'until [ -e "$BERTH_POD_DIR/go" ]; do sleep 0.1; done; '
    stage.runtime.start(server.order("p-1", wait + SEE))
    running(stage.runtime, "p-1")
    put(store, server, "set/one", b"changed\n")
    put(store, server, "set/new", b"new\n")
    store.client.delete_object(Bucket=server.volume.bucket, Key="set/deep/er/two")
    assert finished(stage, server, "p-2").exit_code == 0
    assert log(stage, "p-2") == ["./new", "./one", "new", "changed"]
    assert sorted(server.signed) == ["deep/er/two", "new", "one", "one"]
    (stage.root / "pods" / "p-1" / "work" / "go").touch()
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert log(stage, "p-1") == ["./deep/er/two", "./one", "2", "1"]


@pytest.mark.heavy
def test_pods_that_start_together_fetch_each_object_once(stage: LocalStage, server: SigningServer) -> None:
    for number in range(4):
        stage.runtime.start(server.order(f"p-{number}", SEE))
    for number in range(4):
        assert ended(stage.runtime, f"p-{number}").exit_code == 0
    assert sorted(server.signed) == ["deep/er/two", "one"]
    stage.runtime.forget("p-0")
    assert not (stage.root / "pods" / "p-0").exists()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("set/../x", "the object '../x' cannot be a file: its name contains `.` or `..` between slashes"),
        ("set//x", "the object '/x' cannot be a file: its name starts or ends with /, or contains //"),
        ("set/a//b", "the object 'a//b' cannot be a file"),
        ("set/one/b", "'one' is both an object and the folder that contains 'one/b'. Rename one of them"),
        (f"set/{'n' * 256}", "a part of its name is longer than 255 bytes"),
        (
            "set/line\nbreak",
            "the object 'line\\nbreak' cannot be a file: its name contains a control character",
        ),
    ],
)
def test_object_that_cannot_be_stored_as_a_file_prevents_the_pod_from_starting(
    stage: LocalStage, server: SigningServer, key: str, reason: str
) -> None:
    real = server.list_objects

    def list_objects(after: str) -> dict[str, Any]:  # tools that store such keys differ
        page = real(after)
        page["objects"].append({"path": key.removeprefix("set/"), "size": 1, "etag": '"e"', "modified": 0.0})
        return page

    server.list_objects = list_objects  # type: ignore[method-assign]
    report = finished(stage, server, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert report.message.startswith("the volume data could not be fetched: "), report.message
    assert reason in report.message
    assert (server.signed, cached(stage)) == ([], [])


def test_prefix_without_objects_prevents_the_pod_from_starting(
    stage: LocalStage, server: SigningServer
) -> None:
    server.volume = replace(server.volume, source=f"{server.volume.source}-misspelt")
    report = finished(stage, server, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert report.message.endswith("the volume has no objects. Ask an admin to check its source")


def test_volume_larger_than_its_limit_is_rejected_before_anything_is_fetched(
    stage: LocalStage, server: SigningServer
) -> None:
    server.size_max = 3
    report = finished(stage, server, "p-1")
    assert "exceed the volume's limit of 2.79397e-09 GiB. Raise the volume's max_gib" in report.message
    assert (server.signed, cached(stage)) == ([], [])


def test_error_for_a_bucket_that_cannot_be_listed_does_not_reveal_its_name(
    stage: LocalStage, server: SigningServer
) -> None:
    server.volume = replace(server.volume, source="s3://no-such-bucket/set")
    report = finished(stage, server, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert report.message == (
        "the volume data could not be fetched: the server responded with 409: The bucket does not exist. "
        "Contact an admin."
    )


def test_objects_that_change_during_the_fetch_are_listed_again(
    stage: LocalStage, server: SigningServer, store: ObjectStore
) -> None:
    contents = iter([b"second\n"])

    def change() -> None:
        if (content := next(contents, None)) is not None:
            put(store, server, "set/one", content)

    real = server.sign

    def sign(objects: list[dict[str, str]]) -> dict[str, Any]:
        answer = real(objects)
        change()  # between the listing and the download
        return answer

    server.sign = sign  # type: ignore[method-assign]
    assert finished(stage, server, "p-1").exit_code == 0
    assert log(stage, "p-1") == ["./deep/er/two", "./one", "2", "second"]
    assert server.listings == 2


def test_objects_that_keep_changing_prevent_the_pod_from_starting(
    stage: LocalStage, server: SigningServer, store: ObjectStore
) -> None:
    real, numbers = server.sign, iter(range(100))

    def sign(objects: list[dict[str, str]]) -> dict[str, Any]:
        answer = real(objects)
        put(store, server, "set/one", str(next(numbers)).encode())
        return answer

    server.sign = sign  # type: ignore[method-assign]
    report = finished(stage, server, "p-1")
    assert "objects kept changing or disappearing during all 3 attempts" in report.message


@pytest.mark.heavy
def test_request_to_an_overloaded_server_is_retried(stage: LocalStage, server: SigningServer) -> None:
    statuses = iter([503, 200])
    server.before_listing = lambda: setattr(server, "status", next(statuses, 200))
    assert finished(stage, server, "p-1").exit_code == 0
    assert server.listings == 2


@pytest.mark.heavy
def test_pod_can_be_stopped_while_the_store_hangs(stage: LocalStage, server: SigningServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        server.change_urls = lambda urls: [address for _ in urls]
        stage.runtime.start(server.order("p-1", SEE))
        poll_until(lambda: "0 of 2 objects" in stage.runtime.get_reports(["p-1"])["p-1"].progress)
        assert stage.runtime.get_reports(["p-1"])["p-1"].state == PodState.STARTING
        stage.runtime.stop("p-1", 5)
        report = ended(stage.runtime, "p-1")
    assert (report.cause, report.exit_code) == (PodCause.STOPPED, None)
    assert report.message == "stopped before its volumes had been fetched"


def test_unresponsive_store_is_reported_without_its_address(stage: LocalStage, server: SigningServer) -> None:
    server.change_urls = lambda urls: ["http://127.0.0.1:9/bucket?X-Amz-Signature=key" for _ in urls]
    stage.runtime.start(server.order("p-1", SEE))
    report = poll_until(
        lambda: stage.runtime.get_reports(["p-1"])["p-1"], lambda each: "attempt" in each.progress
    )
    assert (
        "fetching the volume data: the object store is not responding: Connection refused; attempt"
        in report.progress
    )
    assert "127.0.0.1" not in report.progress
    stage.runtime.stop("p-1", 0)


@pytest.mark.heavy
def test_error_for_a_rejected_download_contains_the_error_code_of_the_store(
    stage: LocalStage, server: SigningServer
) -> None:
    rejection = answering(403, "<Error><Code>InvalidObjectState</Code></Error>")
    with rejection as address:
        server.change_urls = lambda urls: [f"{address}/bucket/key?signature" for _ in urls]
        report = finished(stage, server, "p-1")
    assert report.message == (
        "the volume data could not be fetched: the object store responded with 403 (InvalidObjectState)"
    )


def test_full_disk_on_the_node_is_reported(
    stage: LocalStage, server: SigningServer, store: ObjectStore
) -> None:
    put(store, server, "set/large", bytes(300_000))
    with small_disk(stage.root / "volumes"):
        report = finished(stage, server, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert "MB more on the node, but only 0 MB of the node's disk are available for volumes" in report.message


def test_fetch_resumes_after_the_shim_and_the_scheduler_were_killed(
    stage: LocalStage, server: SigningServer, store: ObjectStore
) -> None:
    release, hangs = threading.Event(), threading.Event()

    def hang() -> None:
        if not release.is_set():
            hangs.set()
            release.wait(60)

    server.before_listing = hang
    sent = server.order("p-1", SEE)
    stage.runtime.start(sent)
    poll_until(hangs.is_set)
    stage.restart()
    os.kill(poll_until(lambda: stage.runtime._pod_dir("p-1").shim_pid() or 0), signal.SIGKILL)
    poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"].state == PodState.UNKNOWN)
    release.set()
    (stage.root / "volumes" / server.volume.cache / "x.new").write_text("remains of a download")
    stage.runtime.start(sent)
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert log(stage, "p-1") == ["./deep/er/two", "./one", "2", "1"]
    assert sorted(path.read_bytes() for path in cached(stage)) == [b"1\n", b"2\n"]


@pytest.mark.heavy
def test_credentials_reach_neither_records_nor_the_pod(stage: LocalStage, server: SigningServer) -> None:
    assert finished(stage, server, "p-1", "env; ls -R /dev/shm; cat /proc/mounts").exit_code == 0
    assert {server.volume.bucket, KEY, SECRET}.isdisjoint(" ".join(log(stage, "p-1")))
    volumes = stage.root / "volumes"
    holding = files_containing(stage.root, KEY, SECRET, "X-Amz-Signature")
    assert [path for path in holding if not path.is_relative_to(volumes)] == []
