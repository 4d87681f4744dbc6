"""Keep a pod's log within its size limit, and record when its parts were written.

When the log exceeds the limit, the disk space of its middle is freed, which leaves a gap. Up to a quarter of
the limit is kept at the beginning, and up to half at the end. Offsets still count all bytes.
"""

from __future__ import annotations

import os

from pools.runtimes.shim.records import read_record, write_record

CHECK_SECONDS = 2.0
_KEEP_SIZE_AND_PUNCH_HOLE = 0x02 | 0x01

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from pools.runtimes.shim.logs.logtimes import LogTimes


def read_gap(path: str) -> tuple[int, int]:
    """Return the start and end offsets of the gap in the log, or (0, 0) if there is none."""
    record = read_record(f"{path}.gap")
    return (int(record["start"]), int(record["end"])) if record else (0, 0)


class PodLog:
    def __init__(self, path: str, limit: int, times: LogTimes | None = None) -> None:
        self.path, self.limit, self.head = path, limit, limit // 4
        self.times = times
        self.gap_end = self.head

    def check(self) -> None:
        """Record the time of new output, and drop the middle of a log that exceeds its limit."""
        try:
            info = os.stat(self.path)
        except FileNotFoundError:
            return
        if self.times is not None:
            self.times.record(info)
        size = info.st_size
        if self.limit <= 0 or size - (self.gap_end - self.head) <= self.limit:
            return
        self.gap_end = size - self.limit // 2
        # Record the hole before punching it, so that readers never see an unrecorded hole.
        record = [("start", str(self.head)), ("end", str(self.gap_end))]
        write_record(f"{self.path}.gap", record, durable=False)
        self._punch_hole()

    def _punch_hole(self) -> None:
        """Free the disk space of the log's middle.

        On file systems that do not support holes, the log keeps growing.
        """
        import ctypes

        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        fd = os.open(self.path, os.O_WRONLY)
        try:
            fallocate(fd, _KEEP_SIZE_AND_PUNCH_HOLE, self.head, self.gap_end - self.head)
        finally:
            os.close(fd)
