"""Test S3 volumes in a running installation, from the commands of the guides to the files in pods."""

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.client import Client, Conflict
from tests.contracts.pods import files_containing
from tests.journeys.command import Terminal, sign_in
from tests.journeys.guide import guide_examples, run_as_written
from tests.journeys.installation import Installation, until
from tests.support.ports import free_port
from tests.volumes.object_store import KEY, KEY_ID, ObjectStore, object_store, s3_server

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def store_port() -> int:
    """Return a port on which no object store runs yet."""
    return free_port()


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def admin(shared_berth: Installation, store_port: int, tmp_path: Path) -> Iterator[Terminal]:
    """Define the guide's volume in an object store on this machine."""
    admin = sign_in(shared_berth, "admin", tmp_path / "admin")
    set_secret, edit, _ = guide_examples("Objects in S3", "admins")[0].splitlines()
    admin.berth(*shlex.split(set_secret)[1:], stdin=KEY)
    admin.berth(*shlex.split(f"{edit},endpoint=http://127.0.0.1:{store_port}")[1:])
    yield admin
    admin.berth("pool", "edit", "local", "--volume", "")


@pytest.mark.heavy
def test_pod_waiting_for_the_object_store_survives_killed_berth_processes(
    shared_berth: Installation, admin: Terminal, dave_on_shared_berth: Terminal, store_port: int,
    tmp_path: Path,
) -> None:  # fmt: skip
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    if "no pod isolation" in admin.berth("pool", "describe", "local"):
        pytest.skip("this machine cannot isolate pods")
    submit, _ = guide_examples("Read a dataset from S3")[0].splitlines()
    run_as_written(dave, submit, tmp_path)
    workload = client.workloads.find("reads-s3")
    until(lambda: "The object store is not responding" in (client.workloads.get(workload.id).message or ""))
    described = " ".join(dave.berth("describe", "reads-s3").split())
    assert "fetching the volume imagenet: the server responded with 503: The object store" in described
    assert "ml-datasets" not in described

    with object_store() as store:  # the servers of this process share their objects
        store.fill("ml-datasets", {"imagenet/train/1.jpg": b"one", "imagenet/labels": b"two"})
    children = shared_berth.children()
    for name in ("web", "scheduler"):
        os.kill(children[name], signal.SIGKILL)
    with s3_server(store_port):
        until(lambda: client.workloads.get(workload.id).phase in ("completed", "failed"))
        state = client.workloads.get(workload.id)
        log = client.workloads.log(workload.id).data.decode()
        assert (state.phase, log.split()) == ("completed", ["labels", "train"]), (state.message, log)
    client.workloads.delete(workload.id)
    assert [path for path in files_containing(shared_berth.home, KEY) if "log" in path.name] == []


@pytest.mark.heavy
def test_pod_continues_from_files_that_an_earlier_pod_stored_in_s3(
    shared_berth: Installation, dave_on_shared_berth: Terminal, store: ObjectStore, tmp_path: Path
) -> None:
    admin = sign_in(shared_berth, "admin", tmp_path / "admin")
    if "no pod isolation" in admin.berth("pool", "describe", "local"):
        pytest.skip("this machine cannot isolate pods")
    store.fill("ml-results", {"checkpoints/other/file": b"of others"})
    admin.berth("secret", "set", "s3-writer", "--pool", "local", "--access-key-id", KEY_ID, stdin=KEY)
    [edit] = guide_examples("Writable volumes in S3", "admins")[0].splitlines()
    admin.berth(*shlex.split(f"{edit},endpoint={store.url}")[1:])
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    submit, continues, _ = guide_examples("Write to S3")[0].splitlines()
    run_as_written(dave, submit, tmp_path)
    os.kill(shared_berth.children()["scheduler"], signal.SIGKILL)
    run_as_written(dave, continues, tmp_path)
    workload = client.workloads.find("continues-s3")
    assert client.workloads.log(workload.id).data == b"1\n"
    assert store.client.get_object(Bucket="ml-results", Key="checkpoints/demo/step")["Body"].read() == b"1\n"
    [row] = dave.berth("outputs", "list", "writes-s3").splitlines()[1:]
    assert row.split()[:5] == ["worker-0", "1", "checkpoints", "stored", "1"]
    for name in ("continues-s3", "writes-s3"):
        until(lambda: _is_deleted(client, name))  # noqa: B023
    admin.berth("pool", "edit", "local", "--volume", "")


def _is_deleted(client: Client, name: str) -> bool:
    try:
        client.workloads.delete(client.workloads.find(name).id)
    except Conflict:
        return False
    return True
