"""Contract tests for every store of code chunks."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from projects.code.base import ChunkStore, MissingChunk, StoreFailure
from projects.code.disk import DRAFT, DiskStore
from projects.code.s3 import S3Store
from tests.volumes.object_store import s3_server

LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChunkStore:
    if request.param == "disk":
        return DiskStore(tmp_path / "code")
    for name, value in (
        ("ACCESS_KEY_ID", "test"),
        ("SECRET_ACCESS_KEY", "test"),
        ("DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    return s3_store(request.getfixturevalue("s3_address"), create=True)


def s3_store(address: str, *, create: bool = False) -> S3Store:
    bucket = f"bucket-{uuid4()}"
    store = S3Store(bucket, "/berth/code/", endpoint=address)
    if create:
        store._s3.create_bucket(Bucket=bucket)
    return store


def key(project: int = 1) -> str:
    return f"{project}/{uuid4()}"


def test_written_chunks_can_be_read(store: ChunkStore) -> None:
    contents = {key(number % 3): bytes([number]) * 1000 for number in range(30)}
    store.write(contents)
    assert {name: store.read(name) for name in contents} == contents


def test_keys_of_all_chunks_are_listed(store: ChunkStore) -> None:
    contents = {key(): b"a", key(2): b"b"}
    store.write(contents)
    assert set(store.keys(before=LATER)) == set(contents)
    assert list(store.keys(before=datetime.now(UTC) - timedelta(hours=1))) == []


def test_deleted_chunk_cannot_be_read_and_may_be_deleted_again(store: ChunkStore) -> None:
    first, second = key(), key()
    store.write({first: b"a", second: b"b"})
    for _ in range(2):
        store.delete([first])
    with pytest.raises(MissingChunk):
        store.read(first)
    assert store.read(second) == b"b"
    store.delete([])


def test_error_for_an_unusable_store_states_a_remedy(
    store: ChunkStore, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if isinstance(store, DiskStore):
        (tmp_path / "file").touch()
        broken: ChunkStore = DiskStore(tmp_path / "file")
    else:
        broken = s3_store(request.getfixturevalue("s3_address"))
    with pytest.raises(StoreFailure, match="Contact an admin"):
        broken.write({key(): b"a"})
    with pytest.raises(StoreFailure):
        broken.read(key())


def test_partially_written_chunk_is_never_read_or_listed_and_is_deleted(tmp_path: Path) -> None:
    store, name = DiskStore(tmp_path), key()
    store.write({key(): b"whole"})
    draft = tmp_path / f"{name}{DRAFT}"
    draft.write_bytes(b"ha")
    with pytest.raises(MissingChunk):
        store.read(name)
    assert len(list(store.keys(before=LATER))) == 1
    store.delete_partial_writes(before=datetime.now(UTC) - timedelta(hours=1))
    assert draft.exists(), "the write may still be in progress"
    store.delete_partial_writes(before=LATER)
    assert not draft.exists()


def test_files_of_the_disk_store_are_private(tmp_path: Path) -> None:
    store, name = DiskStore(tmp_path / "code"), key()
    store.write({name: b"a"})
    assert (tmp_path / "code" / name).stat().st_mode & 0o077 == 0
    assert (tmp_path / "code" / name).parent.stat().st_mode & 0o077 == 0
