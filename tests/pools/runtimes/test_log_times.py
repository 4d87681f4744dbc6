"""Tests for the times of logs."""

import os
from pathlib import Path

import pytest

from pools.runtimes.log_times import extend_times, read_times
from pools.runtimes.shim.logs import logtimes
from pools.runtimes.shim.logs.logtimes import ENTRY_BYTES, LIMIT_MIN, LogTimes, append_entries, times_path
from pools.runtimes.shim.logs.podlog import PodLog


class Writer:
    """A log, its times, and a clock in seconds."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.now = path, 1000.0
        monkeypatch.setattr("pools.runtimes.shim.logs.logtimes.time.time", lambda: self.now)
        path.touch()
        self.log = PodLog(str(path), 1 << 20, LogTimes(str(path), 1 << 20))

    def write(self, data: bytes, at: float, checked_at: float) -> None:
        with self.path.open("ab") as file:
            file.write(data)
        os.utime(self.path, (at, at))
        self.now = checked_at
        self.log.check()


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
    return Writer(tmp_path / "log", monkeypatch)


def test_output_is_timestamped_with_the_write_time_of_its_last_byte(writer: Writer) -> None:
    writer.write(b"one\n", at=1001.5, checked_at=1002)
    writer.write(b"", at=1001.5, checked_at=1004)
    writer.write(b"two\nthree\n", at=1060.25, checked_at=1062)
    assert read_times(writer.path, 0, 14) == [(4, 1001500), (14, 1060250)]
    assert read_times(writer.path, 0, 4) == [(4, 1001500)]
    assert read_times(writer.path, 4, 14) == [(14, 1060250)]


def test_modification_time_set_by_a_pod_is_clamped_to_the_interval_between_checks(writer: Writer) -> None:
    writer.write(b"one\n", at=5, checked_at=1002)
    writer.write(b"two\n", at=9999, checked_at=1004)
    assert read_times(writer.path, 0, 8) == [(4, 1000000), (8, 1004000)]


def test_output_since_the_last_check_has_the_modification_time_of_the_log(writer: Writer) -> None:
    writer.write(b"one\n", at=1001, checked_at=1002)
    with writer.path.open("ab") as file:
        file.write(b"two\n")
    os.utime(writer.path, (1003, 1003))
    assert read_times(writer.path, 0, 8, grows=True) == [(4, 1001000), (8, 1003000)]
    assert read_times(writer.path, 0, 8) == [(4, 1001000)], "the last bytes of a lost pod have no time"


def test_log_from_an_earlier_version_has_no_timestamps(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"from an earlier version\n")
    assert read_times(log, 0, 100, grows=True) == []


def test_incomplete_log_timestamp_is_ignored(writer: Writer) -> None:
    writer.write(b"one\n", at=1001, checked_at=1002)
    with Path(times_path(str(writer.path))).open("ab") as file:
        file.write(b"\1\2\3")
    assert read_times(writer.path, 0, 8) == [(4, 1001000)]


def test_timestamps_of_a_long_log_take_little_space_and_stay_in_order(tmp_path: Path) -> None:
    path, count = str(tmp_path / "log"), 3 * LIMIT_MIN // ENTRY_BYTES
    for number in range(1, count + 1):
        append_entries(path, 0, [(10 * number, 2000 * number)])
    assert Path(times_path(path)).stat().st_size <= LIMIT_MIN
    times = read_times(tmp_path / "log", 0, 10 * count)
    assert times == sorted(times)
    assert times[-1] == (10 * count, 2000 * count)
    assert times[-2][0] >= 10 * count - 40, "recent times are the most exact"
    middle = read_times(tmp_path / "log", 5 * count, 5 * count + 10)
    assert 0 <= middle[0][1] - 1000 * count <= 2000 * 8


def test_full_disk_does_not_end_the_pod(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as full:
        full.setattr(logtimes, "append_entries", fail)
        writer.write(b"one\n", at=1001, checked_at=1002)
    writer.write(b"two\n", at=1003, checked_at=1004)
    assert read_times(writer.path, 0, 8)[-1] == (8, 1003000)


def test_log_output_before_the_first_timestamp_update_has_no_time(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    extend_times(log, 0, 100, [(110, 5000)])
    assert read_times(log, 0, 110) == [(100, 0), (110, 5000)]
    extend_times(log, 0, 110, [(130, 7000), (140, 8000)])
    extend_times(log, 0, 110, [(120, 7000)])
    assert read_times(log, 100, 200) == [(110, 5000), (120, 7000)]
