"""Tests for Berth's copies of the logs of Kubernetes pods."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pools.kubernetes.logs import copies as log_copies
from pools.kubernetes.logs.copies import LogCopies
from pools.kubernetes.logs.stream import PENDING_MAX, copy_stream
from pools.runtimes.local_log import read_log
from pools.runtimes.log_times import read_times
from pools.runtimes.shim.logs.podlog import read_gap

STAMP = b"2026-01-01T00:00:0%d.000000000Z "


def test_very_long_line_is_copied_in_parts(tmp_path: Path) -> None:
    copies, line = LogCopies(tmp_path), STAMP % 1 + b"x" * PENDING_MAX
    sizes = []

    def stream(*parts: bytes) -> Iterator[bytes]:
        for part in parts:
            yield part
            sizes.append(copies.path("p-1").stat().st_size)

    copy_stream(copies, "p-1", stream(line, b"y" * 10, b"z\n" + STAMP % 2 + b"next\n"))
    expected = b"x" * PENDING_MAX + b"y" * 10 + b"z\nnext\n"
    assert sizes == [PENDING_MAX, PENDING_MAX + 10, len(expected)]
    assert copies.path("p-1").read_bytes() == expected
    copy_stream(copies, "p-1", iter([line, b"y" * 10 + b"z\n", STAMP % 3 + b"last\n"]))
    assert copies.path("p-1").read_bytes() == expected + b"last\n"


def test_log_copy_records_a_gap_if_one_second_of_output_exceeds_the_fetch_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_copies, "FETCH_BYTES", 100)
    copies, text = LogCopies(tmp_path), b"".join(STAMP % 1 + b"one\n" for _ in range(20))
    following = STAMP % 2 + b"two\n"

    def fetch(since: str, size: int) -> bytes:
        return (following if since.endswith("02Z") else text + following)[:size]

    for _ in range(2):
        copies.update("p-1", fetch)
        first, *_, record, last = copies.path("p-1").read_text().splitlines()
        assert (first, last) == ("one", "two")
        assert "2026-01-01T00:00:01 is missing" in record


def test_log_copy_over_the_size_limit_keeps_its_start_and_end_with_correct_offsets(tmp_path: Path) -> None:
    copies, line = LogCopies(tmp_path / "copies", limit=65536), b"x" * 1023 + b"\n"
    for part in range(10):
        stamp = b"2026-01-01T00:00:%02d.000000000Z " % part
        copies.append("p-1", (stamp + line) * 40)
    path = copies.path("p-1")
    assert path.stat().st_size == 10 * 40 * 1024
    assert path.stat().st_blocks * 512 <= 2 * 65536, "the middle takes no disk space"
    start, end = read_gap(str(path))
    assert (start, end) == (16384, 10 * 40 * 1024 - 32768)
    assert read_log(path, start, 10, False).offset == end
    assert read_times(path, end, end + 10)[0][1] > read_times(path, 0, 10)[0][1] > 0
    copies.move_to("p-1", tmp_path / "final")
    assert read_times(tmp_path / "final", end, end + 10)
    assert read_log(tmp_path / "final", start, 10, True).offset == end
    assert list((tmp_path / "copies").iterdir()) == []


def test_log_copy_keeps_one_cluster_timestamp_per_second(tmp_path: Path) -> None:
    copies = LogCopies(tmp_path)
    copies.append("p-1", STAMP % 1 + b"one\n" + STAMP % 1 + b"two\n" + STAMP % 4 + b"three\n")
    copies.append("p-1", STAMP % 5 + b"four\n")
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    times = [(end, moment / 1000 - start) for end, moment in read_times(copies.path("p-1"), 0, 100)]
    assert times == [(8, 1.0), (14, 4.0), (19, 5.0)]
