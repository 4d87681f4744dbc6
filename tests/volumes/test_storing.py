"""Tests that a pod's changes are stored as objects, resume after interruptions and harm no other objects."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from berth.core.errors import Unavailable
from pools.buckets.bucket import Bucket
from pools.buckets.logins import BucketLogin
from pools.buckets.writer import BucketWriter, UploadNotFound
from pools.engine.volumes import Volume
from pools.runtimes.files.base import FilesNotFound, PodFile, VolumeChanges
from projects.services import volume_changes
from projects.services.outputs import OutputsRejected
from projects.services.volume_changes import Progress, VolumeTransfer
from tests.volumes.object_store import KEY, KEY_ID, ObjectStore

PART = 5 * 2**20  # the minimum part size of S3
LARGE = b"a" * PART + b"b" * PART + b"c"


class Pod:
    """An ended pod that has changed a volume with one object, `set/old`."""

    def __init__(self, store: ObjectStore, bucket: str, **changes: Any) -> None:
        store.fill(bucket, {"set/old": b"old", "set-aside": b"other"})
        self.store, self.volume = store, store.volume(f"s3://{bucket}/set", access="read_write", **changes)
        self.contents: dict[str, bytes] = {}
        self.deleted: list[tuple[str, str]] = []
        self.saved: list[Progress] = []

    def transfer(self, progress: Progress | None = None) -> VolumeTransfer:
        login = BucketLogin(KEY_ID, KEY)
        files = tuple(PodFile(path, len(content), False) for path, content in self.contents.items())
        return VolumeTransfer(
            VolumeChanges(files, tuple(self.deleted)), progress or Progress(), self.volume,
            Bucket(self.volume, login), BucketWriter(self.volume, login), self.read, self.save,
        )  # fmt: skip

    def read(self, path: str, offset: int, limit: int) -> bytes:
        return self.contents[path][offset : offset + limit]

    def save(self, progress: Progress) -> None:
        self.saved.append(Progress.from_json(deepcopy(progress.to_json())))

    def objects(self) -> dict[str, bytes]:
        listed = self.store.client.list_objects_v2(Bucket=self.volume.bucket).get("Contents", [])
        keys = [entry["Key"] for entry in listed]
        read = self.store.client.get_object
        return {key: read(Bucket=self.volume.bucket, Key=key)["Body"].read() for key in keys}

    def etag(self, path: str) -> str:
        return str(self.store.client.head_object(Bucket=self.volume.bucket, Key=f"set/{path}")["ETag"])

    def uploads(self) -> list[Any]:
        answer = self.store.client.list_multipart_uploads(Bucket=self.volume.bucket)
        return list(answer.get("Uploads", []))


@pytest.fixture
def pod(store: ObjectStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Pod:
    monkeypatch.setattr(volume_changes, "PART_BYTES", PART)
    return Pod(store, f"storing-{abs(hash(request.node.nodeid))}")


def never() -> bool:
    return False


def turns(count: int) -> Callable[[], bool]:
    """Return a function that says that the time is up when it is called for the `count`th time."""
    calls = iter(range(1, 1000))
    return lambda: next(calls) >= count


def test_changed_and_deleted_files_are_stored_below_the_bucket_prefix(pod: Pod) -> None:
    pod.contents = {"old": b"new", "deep/er": b"", "large": LARGE}
    pod.store.fill(pod.volume.bucket, {"set/unwanted": b"x"})
    pod.deleted = [("unwanted", pod.etag("unwanted")), ("never-there", '"etag"')]
    transfer = pod.transfer()
    assert transfer.run(never)
    assert pod.objects() == {
        "set/old": b"new", "set/deep/er": b"", "set/large": LARGE, "set-aside": b"other",
    }  # fmt: skip
    done = transfer.progress
    assert (done.file_count, done.size, done.deleted_count) == (3, len(LARGE) + 3, 2)
    assert pod.uploads() == []


def test_concurrently_replaced_object_is_not_deleted(pod: Pod) -> None:
    pod.deleted = [("old", pod.etag("old"))]
    pod.store.fill(pod.volume.bucket, {"set/old": b"of others"})
    transfer = pod.transfer()
    assert transfer.run(never)
    assert pod.objects()["set/old"] == b"of others"
    assert transfer.skipped == {"old": "was deleted by the pod, but has been replaced by others since"}
    assert transfer.progress.deleted_count == 0


@pytest.mark.heavy
@pytest.mark.parametrize("turn", range(1, 7))
def test_transfer_continues_after_any_interruption_without_repeating_parts(pod: Pod, turn: int) -> None:
    pod.contents = {"a": b"1", "large": LARGE, "z": b"2"}
    pod.deleted = [("old", pod.etag("old"))]
    first = pod.transfer()
    ended = first.run(turns(turn))
    stored = Progress.from_json(first.progress.to_json())
    reads: list[tuple[str, int]] = []
    read = pod.read

    def counting(path: str, offset: int, limit: int) -> bytes:
        reads.append((path, offset))
        return read(path, offset, limit)

    pod.read = counting  # type: ignore[method-assign]
    second = pod.transfer(stored)
    assert second.run(never)
    parts = stored.upload.etags if stored.upload else []
    assert all(offset >= len(parts) * PART for path, offset in reads if path == "large")
    assert not ended or reads == []
    assert pod.objects() == {"set/a": b"1", "set/large": LARGE, "set/z": b"2", "set-aside": b"other"}
    assert (second.progress.file_count, second.progress.deleted_count) == (3, 1)
    assert pod.uploads() == []


@pytest.mark.parametrize("method", ["put_part", "complete"])
def test_multipart_upload_restarts_if_the_store_completed_or_deleted_it(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    pod.contents = {"large": LARGE}
    real = getattr(BucketWriter, method)
    aborted: list[str] = []

    def reject_once(self: BucketWriter, path: str, upload: str, *rest: Any) -> Any:
        if not aborted:  # moto answers 500 instead of NoSuchUpload
            aborted.append(upload)
            self.abort(path, upload)
            raise UploadNotFound
        return real(self, path, upload, *rest)

    monkeypatch.setattr(BucketWriter, method, reject_once)
    transfer = pod.transfer()
    assert transfer.run(never)
    assert aborted
    assert transfer.progress.size == len(LARGE)
    assert pod.objects()["set/large"] == LARGE
    assert pod.uploads() == []


def test_store_that_deletes_every_upload_raises_unavailable(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.contents = {"large": LARGE}

    def reject(*_: Any) -> None:
        raise UploadNotFound

    monkeypatch.setattr(BucketWriter, "put_part", reject)
    with pytest.raises(Unavailable, match="keeps deleting unfinished uploads"):
        pod.transfer().run(never)


def test_multipart_upload_is_recorded_before_its_first_part_is_sent(pod: Pod) -> None:
    pod.contents = {"large": LARGE}
    transfer = pod.transfer()

    def save(progress: Progress) -> None:
        assert progress.upload is not None
        assert progress.upload.etags == []
        raise LookupError

    transfer._save = save
    with pytest.raises(LookupError):
        transfer.run(never)
    assert len(pod.uploads()) == 1
    BucketWriter(pod.volume, BucketLogin(KEY_ID, KEY)).abort("large", pod.uploads()[0]["UploadId"])
    assert pod.uploads() == []


def test_file_that_cannot_be_stored_as_an_object_is_omitted_with_a_reason(pod: Pod) -> None:
    pod.store.fill(pod.volume.bucket, {"set/folder/file": b"x"})
    pod.contents = {
        "old/below": b"1", "folder": b"2", "line\nbreak": b"3", "/".join(["d" * 200] * 6): b"4", "fine": b"5",
    }  # fmt: skip
    transfer = pod.transfer()
    assert transfer.run(never)
    assert {path: reason.partition(": ")[2] for path, reason in transfer.skipped.items()} == {
        "old/below": "the volume has both an object and a folder with this name",
        "folder": "the volume has both an object and a folder with this name",
        "line\nbreak": "its name contains a control character",
        "/".join(["d" * 200] * 6): "its key is longer than 1,024 bytes",
    }
    assert pod.objects()["set/fine"] == b"5"


def test_file_can_replace_a_folder_that_the_pod_has_deleted(pod: Pod) -> None:
    pod.store.fill(pod.volume.bucket, {"set/folder/file": b"x"})
    pod.deleted = [("folder/file", pod.etag("folder/file"))]
    pod.contents = {"folder": b"a file now"}
    assert pod.transfer().run(never)
    assert pod.objects()["set/folder"] == b"a file now"
    assert "set/folder/file" not in pod.objects()


def test_changes_that_exceed_the_volumes_limit_are_rejected_entirely(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_changes, "GIB", 2)  # the default max_gib of 100 now means 200 bytes
    pod.contents = {"first": b"x" * 100, "second": b"y" * 98}
    with pytest.raises(OutputsRejected, match="exceeds its limit of 100 GiB"):
        pod.transfer()
    pod.deleted = [("old", pod.etag("old"))]
    assert pod.transfer().run(never), "deleted objects do not count"


def test_too_many_objects_are_rejected(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_changes, "FILES_MAX", 1)
    pod.contents = {"first": b"x"}
    with pytest.raises(OutputsRejected, match="would hold 2 objects, but the maximum is 1"):
        pod.transfer()


def test_file_truncated_after_the_listing_is_rejected(pod: Pod) -> None:
    pod.contents = {"file": b"content"}
    transfer = pod.transfer()
    pod.contents = {"file": b""}
    with pytest.raises(FilesNotFound, match="file was truncated"):
        transfer.run(never)
    assert "set/file" not in pod.objects()


def test_bucket_listing_over_several_pages_is_read_completely(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.store.fill_directly(pod.volume.bucket, (f"set/{number}/x" for number in range(1005)))
    pod.contents = {"999": b"is a folder"}
    assert list(pod.transfer().skipped) == ["999"]


def test_volume_without_a_prefix_contains_the_entire_bucket(pod: Pod) -> None:
    pod.volume = Volume("data", f"s3://{pod.volume.bucket}", access="read_write", endpoint=pod.store.url)
    pod.contents = {"top": b"x"}
    assert pod.transfer().run(never)
    assert pod.objects()["top"] == b"x"
