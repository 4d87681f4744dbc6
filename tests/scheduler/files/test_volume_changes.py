"""Tests that changes by ended pods are stored in S3 volumes, or that the row states why not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from berth.core.errors import Conflict, Unavailable
from berth.db.loops.lease import LeadershipLost
from pools.buckets.writer import BucketWriter
from pools.runtimes.base import RuntimeFailure
from pools.runtimes.files.base import PodFile, VolumeChanges
from pools.services import edit_pool
from projects.models import Event, Pod, PodOutputs, Workload
from projects.services import volume_changes, workloads
from projects.services.workloads.control import delete
from scheduler.leftovers import volumes
from scheduler.leftovers.collector import GIVE_UP
from scheduler.leftovers.volumes import VolumesCollector
from tests.scheduler.stage import Stage
from tests.support.crashes import Killed, killed_at
from tests.volumes.object_store import KEY, KEY_ID, ObjectStore, object_store

ONE = [{"name": "worker", "replicas": 1}]
PART = 5 * 2**20  # the minimum part size of S3
LARGE = b"a" * PART + b"b"
MOUNTS = [{"name": "data", "path": "/data"}, {"name": "results", "path": "/results"}]


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.BERTH_LOCAL_URL = "http://127.0.0.1:8000"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setattr(volume_changes, "PART_BYTES", PART)


class Writer:
    """A workload with one running pod that may write to the volume `results`, but not to `data`."""

    def __init__(self, stage: Stage, store: ObjectStore, bucket: str, name: str = "writer") -> None:
        self.stage, self.store, self.bucket = stage, store, bucket
        store.fill(bucket, {"results/old": b"old"})
        self.define()
        self.workload = stage.submit(name, roles=ONE, volumes=MOUNTS)
        stage.tick(2)
        (self.pod,) = stage.pods(self.workload, "running")
        self.collector = VolumesCollector(stage.clock, lambda pool: stage.runtime, 3)
        self.leave({"results/new": b"new"})

    def define(self, **changes: Any) -> None:
        values: dict[str, Any] = {"access": "read_write", **changes}
        results = {"name": "results", "source": f"s3://{self.bucket}/results", "endpoint": self.store.url}
        data = {"name": "data", "source": f"s3://{self.bucket}/data", "endpoint": self.store.url}
        self.stage.cast.pool.refresh_from_db()
        edit_pool(
            actor=self.stage.cast.alice, pool=self.stage.cast.pool,
            changes={"volumes": [results | values, data]},
        )  # fmt: skip

    def leave(self, files: dict[str, bytes], *deleted: tuple[str, str]) -> None:
        pod_id = str(self.pod.pk)
        self.stage.runtime.files[pod_id] = files
        changed = [PodFile(path.removeprefix("results/"), len(files[path]), False) for path in files]
        self.stage.runtime.volume_changes[pod_id, "results"] = VolumeChanges(tuple(changed), deleted)

    def end(self) -> None:
        self.stage.finish(self.workload, 0)
        self.stage.tick(2)

    def collect(self, seconds: float = 3) -> PodOutputs:
        self.stage.clock.advance(seconds)
        assert self.collector.run_once()
        return self.row

    @property
    def row(self) -> PodOutputs:
        return PodOutputs.objects.get(pod=self.pod)

    def objects(self) -> dict[str, bytes]:
        listed = self.store.client.list_objects_v2(Bucket=self.bucket)["Contents"]
        read = self.store.client.get_object
        return {entry["Key"]: read(Bucket=self.bucket, Key=entry["Key"])["Body"].read() for entry in listed}

    def events(self) -> list[str]:
        kinds = ("volume_stored", "volume_failed")
        return list(Event.objects.filter(kind__in=kinds).order_by("pk").values_list("message", flat=True))


@pytest.fixture
def writer(stage: Stage, store: ObjectStore, request: pytest.FixtureRequest) -> Writer:
    return Writer(stage, store, f"changes-{abs(hash(request.node.nodeid))}")


@pytest.mark.heavy
def test_volume_changes_are_stored_after_the_pod_has_ended(writer: Writer) -> None:
    etag = writer.store.client.head_object(Bucket=writer.bucket, Key="results/old")["ETag"]
    writer.leave({"results/new": b"new"}, ("old", etag))
    assert writer.collect().state == "waiting", "the pod is still running"
    writer.end()
    row = writer.collect()
    assert (row.state, row.message, row.file_count, row.size, row.deleted_count) == ("stored", "", 1, 3, 1)
    assert writer.objects() == {"results/new": b"new"}
    assert writer.events() == [
        "Stored 1 changed file (0.0 MiB) from pod worker-0 in volume results, and deleted 1 object."
    ]


def test_only_writable_s3_volumes_report_changes(writer: Writer) -> None:
    assert [row.volume for row in PodOutputs.objects.all()] == ["results"]
    writer.define()
    reader = writer.stage.submit("reader", roles=ONE, volumes=[{**MOUNTS[1], "read_only": True}])
    writer.stage.tick(2)
    assert not PodOutputs.objects.filter(pod__workload=reader).exists()


def test_object_store_is_not_contacted_if_the_pod_changed_no_files(writer: Writer) -> None:
    writer.leave({})
    writer.define(endpoint="http://127.0.0.1:9")
    PodOutputs.objects.update(source="")
    writer.end()
    row = writer.collect()
    assert (row.state, row.message, writer.events()) == ("stored", "", [])


@pytest.mark.heavy
def test_node_keeps_the_files_until_they_are_stored(writer: Writer) -> None:
    writer.end()
    writer.stage.clock.advance(3600)
    writer.stage.loop.swept_at = None
    writer.stage.tick()
    assert str(writer.pod.pk) in writer.stage.runtime.list_pods()
    assert writer.collect().state == "stored"
    writer.stage.clock.advance(3600)
    writer.stage.tick()
    assert writer.stage.runtime.list_pods() == ()


@pytest.mark.parametrize("after", range(1, 6))
def test_transfer_recovers_from_a_crash_at_any_point(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    writer.leave({"results/a": b"1", "results/large": LARGE})
    writer.end()
    done: list[str] = []

    def killing(name: str) -> Callable[..., Any]:
        real = getattr(BucketWriter, name)

        def call(self: BucketWriter, *rest: Any) -> Any:
            answer = real(self, *rest)
            done.append(name)
            if len(done) == after:
                raise Killed
            return answer

        return call

    with monkeypatch.context() as patch:
        for name in ("put", "begin_upload", "put_part", "complete"):
            patch.setattr(BucketWriter, name, killing(name))
        with pytest.raises(Killed):
            writer.collect()
    assert writer.row.state == "waiting"
    if done[-1] == "complete":  # moto answers 500 instead of NoSuchUpload
        PodOutputs.objects.update(progress={**writer.row.progress, "upload": None})
    assert writer.collect().state == "stored"
    assert writer.objects() == {"results/a": b"1", "results/large": LARGE, "results/old": b"old"}


def test_transfer_recovers_from_a_crash_after_everything_was_stored(writer: Writer) -> None:
    writer.end()

    with killed_at("volumes.copied"):
        writer.collect()
    assert writer.collect().state == "stored"
    assert len(writer.events()) == 1


@pytest.mark.heavy
def test_transfer_is_interrupted_if_the_scheduler_loses_leadership(writer: Writer) -> None:
    writer.end()
    writer.collector._stop_requested.set()
    with pytest.raises(LeadershipLost):
        writer.collect()
    assert writer.row.state == "waiting"


@pytest.mark.heavy
def test_long_volume_transfer_continues_in_the_next_turn(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.leave({"results/a": b"1", "results/large": LARGE, "results/z": b"2"})
    writer.end()
    monkeypatch.setattr(volumes, "TURN_SECONDS", 0.0)
    assert writer.collect().progress == {}, "no pod is begun when the time is up"
    monkeypatch.setattr(volumes, "TURN_SECONDS", 60.0)
    monkeypatch.setattr(
        volume_changes.VolumeTransfer, "run", _stop_after(volume_changes.VolumeTransfer.run, 2)
    )
    states = []
    while writer.collect().state == "waiting":
        upload = writer.row.progress["upload"]
        states.append((writer.row.progress["file"], len(upload["etags"]) if upload else 0))
    assert states == [("a", 1), ("large", 0)]
    assert writer.objects()["results/large"] == LARGE
    assert writer.row.file_count == 3


def _stop_after(run: Any, count: int) -> Any:
    def limited(transfer: Any, is_time_up: Any) -> bool:
        calls = iter(range(1, 100))
        return bool(run(transfer, lambda: next(calls) >= count))

    return limited


@pytest.mark.heavy
def test_transfer_is_retried_until_its_deadline_if_the_node_or_the_store_is_unreachable(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.end()
    writer.stage.runtime.next("list_volume_changes", RuntimeFailure("the node does not respond"))
    row = writer.collect()
    assert (row.state, row.attempts) == ("waiting", 1)
    assert row.message == "The node does not respond. Berth tries again."

    def fail(*_: Any) -> None:
        raise Unavailable("The object store does not respond.")

    with monkeypatch.context() as patch:
        patch.setattr(BucketWriter, "put", fail)
        assert writer.collect(60).message == "The object store does not respond. Berth tries again."
        row = writer.collect(GIVE_UP.total_seconds())
    assert (row.state, row.message) == ("failed", "The object store does not respond.")
    [event] = writer.events()
    assert event.startswith("Changes by pod worker-0 to volume results could not be stored: The object")


@pytest.mark.heavy
def test_parts_of_an_abandoned_upload_are_deleted(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.leave({"results/large": LARGE})
    writer.end()

    def fail(*_: Any) -> None:
        raise Unavailable("The object store is overloaded.")

    monkeypatch.setattr(BucketWriter, "put_part", fail)
    assert writer.collect().progress["upload"]["path"] == "large"
    assert len(writer.store.client.list_multipart_uploads(Bucket=writer.bucket)["Uploads"]) == 1
    writer.define(access="read_only")
    assert writer.collect(GIVE_UP.total_seconds()).state == "failed"
    assert "Uploads" not in writer.store.client.list_multipart_uploads(Bucket=writer.bucket)


@pytest.mark.heavy
def test_files_lost_with_their_node_are_reported(writer: Writer) -> None:
    writer.end()
    writer.stage.runtime.lose_all_pods()
    row = writer.collect()
    assert (row.state, row.message) == ("failed", "The pod's files no longer exist.")


@pytest.mark.heavy
def test_pod_that_never_started_has_no_files_to_lose(writer: Writer) -> None:
    writer.end()
    Pod.objects.update(started_at=None)
    writer.stage.runtime.lose_all_pods()
    assert writer.collect().state == "stored"


@pytest.mark.parametrize(
    "changes",
    [
        {"access": "read_only"},
        {"projects": ["speech"]},
        {"source": "s3://another-bucket"},
        {"name": "renamed"},
    ],
)
def test_volume_changes_are_rejected_if_the_project_has_lost_write_access(
    writer: Writer, changes: dict[str, Any]
) -> None:
    writer.end()
    writer.define(**changes)
    row = writer.collect()
    assert row.state == "failed"
    assert row.message == (
        "Pool local no longer allows project vision to write to the volume results. "
        "Ask an admin to restore the permission."
    )
    assert writer.objects() == {"results/old": b"old"}


@pytest.mark.heavy
def test_error_for_invalid_credentials_does_not_name_the_bucket(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.end()
    writer.define(secret="")
    monkeypatch.setattr(volumes, "find_login", _reject)
    row = writer.collect()
    assert row.message == "The server has no credentials for it. Berth tries again."
    assert writer.bucket not in row.message


def _reject(*_: Any) -> Any:
    raise Conflict("The server has no credentials for it.")


def test_workload_with_unstored_changes_cannot_be_deleted(writer: Writer) -> None:
    writer.end()
    alice = writer.stage.cast.alice
    with pytest.raises(Conflict, match="Changes by pod worker-0 to volume results are not stored yet"):
        delete(actor=alice, workload=writer.workload)
    writer.collect()
    delete(actor=alice, workload=writer.workload)
    assert not Workload.objects.filter(pk=writer.workload.pk).exists()


def test_checkpoint_of_a_suspended_workload_is_stored(writer: Writer) -> None:
    workloads.suspend(actor=writer.stage.cast.alice, workload=writer.workload)
    writer.stage.tick(3)
    assert writer.stage.phase(writer.workload) == "suspended"
    assert writer.collect().state == "stored"
    assert writer.objects()["results/new"] == b"new"
