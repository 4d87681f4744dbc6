"""Tests for a node's cache of volume objects."""

from pathlib import Path

import pytest

from pools.runtimes.shim.transfers import cache as caches
from pools.runtimes.shim.transfers.cache import Cache
from pools.runtimes.shim.transfers.listing import Object
from tests.code.small_disk import small_disk

KIB = 1024


def stored(cache: Cache, path: str, size: int = 20 * KIB) -> Object:
    """Store an object in the cache as a fetch does."""
    entry = Object(path, size, f'"{path}"', 1.0)
    Path(cache.draft_path(entry)).write_bytes(bytes(size))
    cache.store(entry)
    return entry


def opened(root: Path, source: str) -> Cache:
    cache = Cache(str(root), source)
    cache.lock(lambda _: pytest.fail("the cache is locked"))
    return cache


def test_fetch_deletes_unneeded_objects_to_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "RESERVE_BYTES", 0)
    with small_disk(tmp_path / "disk") as root:
        (root / "pod").mkdir()
        other, own = opened(root, "other"), opened(root, "own")
        used, unused = stored(other, "used"), stored(other, "unused")
        other.link(used, str(root / "pod" / "link"))
        other.release()
        needed, outdated = stored(own, "needed"), stored(own, "outdated")
        free = own.make_room(80 * KIB, [needed])
        assert 80 * KIB <= free < 100 * KIB
        assert [own.has(each) for each in (needed, outdated)] == [True, False]
        assert [other.has(each) for each in (used, unused)] == [True, False]
        assert own.make_room(100 * KIB, [needed]) == free, "nothing else can be deleted"


def test_objects_of_a_source_that_another_process_is_fetching_are_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "RESERVE_BYTES", 0)
    with small_disk(tmp_path / "disk") as root:
        other, own = opened(root, "other"), opened(root, "own")
        fetched = stored(other, "fetched", 60 * KIB)
        assert own.make_room(100 * KIB, []) < 100 * KIB
        assert other.has(fetched)
        other.release()
        assert own.make_room(100 * KIB, []) >= 100 * KIB
        assert not other.has(fetched)


def test_unused_cached_objects_are_limited_to_a_fraction_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "DISK_SHARE", 0.5)
    with small_disk(tmp_path / "disk") as root:
        (root / "pod").mkdir()
        cache = opened(root, "own")
        objects = [stored(cache, str(number)) for number in range(5)]
        cache.link(objects[0], str(root / "pod" / "link"))
        cache.trim()
        assert [cache.has(each) for each in objects].count(True) == 4, "of four unused objects, three remain"
        assert cache.has(objects[0])
        (root / "pod" / "link").unlink()
        cache.trim()
        assert [cache.has(each) for each in objects].count(True) == 3


def test_changed_object_has_a_separate_cache_entry(tmp_path: Path) -> None:
    cache = opened(tmp_path, "own")
    entry = stored(cache, "a")
    changed = [
        Object("b", 20 * KIB, '"a"', 1.0),
        Object("a", 1, '"a"', 1.0),
        Object("a", 20 * KIB, '"b"', 1.0),
    ]
    assert cache.has(entry)
    assert not any(cache.has(each) for each in changed)
    assert not cache.has(Object("../own/a", 20 * KIB, '"a"', 1.0))
