"""Local copies of running pods' logs, which can be read by offset and outlive the pods.

The API offers timestamps instead of offsets, so each read fetches the lines written since the previous read.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from pools.runtimes import local_log
from pools.runtimes.base import LogTime
from pools.runtimes.local import LOG_LIMIT
from pools.runtimes.log_times import extend_times
from pools.runtimes.shim.logs.podlog import PodLog, read_gap
from pools.runtimes.shim.records import sync_directory

FETCH_BYTES = 8 * 1024 * 1024
_STAMP = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d) "
_LINE_START, _PART_START = re.compile(_STAMP), re.compile(rb"(.{16384})" + _STAMP, re.DOTALL)
# Returns the log since a time, up to a number of bytes. An empty time means the beginning of the log.
Fetch = Callable[[str, int], bytes]


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """End of a log copy: its size, the time of its last line, and the number of lines with that time."""

    size: int = 0
    since: str = ""
    ties: int = 0


class LogCopies:
    """Copies of logs in a directory. The middle of a copy that exceeds the size limit is dropped."""

    def __init__(self, root: Path, limit: int = LOG_LIMIT) -> None:
        self._root, self._limit = root, limit
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, pod_id: str) -> Path:
        return self._root / pod_id

    def update(self, pod_id: str, fetch: Fetch) -> Path:
        """Append the output that the pod has written since the last update. Return the path of the copy."""
        with self._lock_copy(pod_id) as fd:
            position = self._load(pod_id)
            # Remove the bytes that a crashed update wrote after this position.
            os.ftruncate(fd, position.size)
            while True:
                fetched = fetch(_whole_seconds(position.since), FETCH_BYTES)
                is_cut = len(fetched) >= FETCH_BYTES
                new, position, times = _new_lines(fetched, position, is_cut=is_cut)
                if new:
                    self._append_lines(pod_id, fd, new, position, times)
                elif is_cut and position.since and fetched.startswith(position.since[:19].encode()):
                    position = self._skip_to_next_second(pod_id, fd, position)
                else:
                    return self.path(pod_id)
                if not is_cut:
                    return self.path(pod_id)

    def _skip_to_next_second(self, pod_id: str, fd: int, position: CopyPosition) -> CopyPosition:
        """Record that the rest of the current second's log is missing, and return the start of the next
        second.

        Otherwise, the API would repeat lines of the current second.
        """
        second = position.since[:19]
        gap = f"[Berth: the rest of the log of {second} is missing: it exceeds {FETCH_BYTES} bytes]\n"
        if position.size and os.pread(fd, 1, position.size - 1) != b"\n":
            gap = f"\n{gap}"  # the response ended in the middle of a line
        following = datetime.fromisoformat(second) + timedelta(seconds=1)
        size = position.size + os.pwrite(fd, gap.encode(), position.size)
        skipped = CopyPosition(size, f"{following.isoformat()}.{'0' * 9}{position.since[29:]}")
        self._store(pod_id, skipped)
        return skipped

    def last_time(self, pod_id: str) -> str:
        """Return the last copied line's time in whole seconds, or an empty string if there is none."""
        return _whole_seconds(self._load(pod_id).since)

    def append(self, pod_id: str, data: bytes) -> int | None:
        """Append the lines that have not been copied yet.

        Return the new size, or None if no line was appended.
        """
        with self._lock_copy(pod_id) as fd:
            position = self._load(pod_id)
            os.ftruncate(fd, position.size)
            new, position, times = _new_lines(data, position, is_cut=False)
            if new:
                self._append_lines(pod_id, fd, new, position, times)
            return position.size if new else None

    def _append_lines(
        self, pod_id: str, fd: int, data: bytes, position: CopyPosition, times: Sequence[LogTime]
    ) -> None:
        """Append data to the copy, which then ends at `position`.

        The copy stays consistent even if a crash interrupts the call.
        """
        begin = position.size - len(data)
        os.pwrite(fd, data, begin)
        extend_times(self.path(pod_id), self._limit, begin, times)
        self._store(pod_id, position)
        self._trim(pod_id)

    def append_to_last_line(self, pod_id: str, data: bytes, end: int | None) -> int | None:
        """Append data to the last line of the copy.

        Return the new size, or None if the copy no longer ends at `end`.
        """
        if end is None:
            return None
        with self._lock_copy(pod_id) as fd:
            position = self._load(pod_id)
            if position.size != end:
                return None
            os.ftruncate(fd, end)
            os.pwrite(fd, data, end)
            self._store(pod_id, replace(position, size=end + len(data)))
            self._trim(pod_id)
            return end + len(data)

    def move_to(self, pod_id: str, target: Path) -> None:
        """Move the copy, which may be empty, to its final path."""
        with self._lock_copy(pod_id):
            local_log.move_log(self.path(pod_id), target)
            self._position_path(pod_id).unlink(missing_ok=True)
            sync_directory(str(target.parent))

    def delete_copy(self, pod_id: str) -> None:
        local_log.delete_log(self.path(pod_id))
        self._position_path(pod_id).unlink(missing_ok=True)

    def _trim(self, pod_id: str) -> None:
        """Drop the middle of a copy that is too large. Offsets still count all bytes."""
        path = str(self.path(pod_id))
        log = PodLog(path, self._limit)
        log.gap_end = max(log.head, read_gap(path)[1])
        log.check()

    @contextmanager
    def _lock_copy(self, pod_id: str) -> Iterator[int]:
        """Lock the copy, because several processes may append to it."""
        fd = os.open(self.path(pod_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def _position_path(self, pod_id: str) -> Path:
        return self._root / f".{pod_id}.position"

    def _load(self, pod_id: str) -> CopyPosition:
        try:
            return CopyPosition(**json.loads(self._position_path(pod_id).read_text()))
        except FileNotFoundError:
            return CopyPosition()

    def _store(self, pod_id: str, position: CopyPosition) -> None:
        path = self._position_path(pod_id)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps({"size": position.size, "since": position.since, "ties": position.ties}))
        draft.rename(path)


def _new_lines(
    fetched: bytes, position: CopyPosition, *, is_cut: bool
) -> tuple[bytes, CopyPosition, list[LogTime]]:
    """Return the lines after the position without their timestamps, the new position, and the times of the
    lines.
    """
    since, ties, seen = position.since, position.ties, 0
    new: list[bytes] = []
    size = position.size
    ends: dict[str, int] = {}  # end offset of the last line in each second
    lines = _split_lines(fetched)
    if is_cut and len(lines) > 1 and not lines[-1].endswith(b"\n"):
        lines.pop()
    for line in lines:
        match = _LINE_START.match(line)
        if match is None:
            continue
        stamp = _pad_timestamp(match)
        if stamp < position.since:
            continue
        if stamp == position.since:
            seen += 1
            if seen <= position.ties:
                continue
        since, ties = (since, ties + 1) if stamp == since else (stamp, 1)
        new.append(_join_parts(line[match.end() :]))
        size += len(new[-1])
        ends[_whole_seconds(stamp)] = size
    times = [(end, int(datetime.fromisoformat(second).timestamp()) * 1000) for second, end in ends.items()]
    return b"".join(new), CopyPosition(size, since, ties), sorted(times)


def _split_lines(data: bytes) -> list[bytes]:
    """Split the data into lines, but only at line feeds."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _join_parts(line: bytes) -> bytes:
    """Remove the timestamps that older kubelets add inside long lines."""
    joined, rest = b"", line
    while (match := _PART_START.match(rest)) is not None:
        joined, rest = joined + match[1], rest[match.end() :]
    return joined + rest


def _pad_timestamp(match: re.Match[bytes]) -> str:
    """Return the timestamp with nine decimals, so that timestamps compare as text."""
    moment, fraction, zone = (part.decode() if part else "" for part in match.groups())
    return f"{moment}.{fraction.ljust(9, '0')}{zone}"


def _whole_seconds(stamp: str) -> str:
    """Return the timestamp in whole seconds, because the API rejects fractions."""
    return stamp[:19] + stamp[29:] if stamp else ""
