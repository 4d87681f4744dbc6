"""Local records of pods that run on other machines, one file per pod.

Files are written atomically, so any process may read them.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pools.runtimes import local_log
from pools.runtimes.base import LogTime, PodCause, PodReport, PodState
from pools.runtimes.log_times import store_times
from pools.runtimes.pod_dir import validate_name
from pools.runtimes.shim.records import Record, read_record, sync, sync_directory, write_record
from pools.runtimes.wire import decode_report, encode_report


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Record of one pod.

    `instance_id` is empty for a pod that was stopped before it was placed. `received` is true if the node may
    have received the pod. If it is false, the pod cannot run. `planned` is the report to record once Berth
    has terminated the pod.
    """

    instance_id: str
    workspace: str
    ended: PodReport | None = None
    received: bool = True
    planned: PodReport | None = None


class Ledger:
    """Records of all pods of one runtime.

    If `syncs_starts` is False, records of starting pods reach the disk only when `sync` is called, which
    threads can do concurrently.
    """

    def __init__(self, root: Path, *, syncs_starts: bool = True) -> None:
        self._syncs_starts = syncs_starts
        self._pods, self._logs = root / "pods", root / "logs"
        for directory in (self._pods, self._logs):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()

    def find(self, pod_id: str) -> LedgerEntry | None:
        record = read_record(str(self._pods / validate_name(pod_id)))
        if record is None or "instance" not in record:  # a machine crash may empty an unsynced file
            return None
        ended, planned = (
            decode_report(json.loads(record[name])) if name in record else None
            for name in ("ended", "planned")
        )
        return LedgerEntry(
            record["instance"], record["workspace"], ended, record.get("received") != "no", planned
        )

    def has_ended(self, pod_id: str) -> bool:
        entry = self.find(pod_id)
        return self.log_path(pod_id).exists() or (entry is not None and entry.ended is not None)

    def pod_ids(self) -> tuple[str, ...]:
        return tuple(
            sorted(entry.name for entry in os.scandir(self._pods) if not _is_temporary_file(entry.name))
        )

    def record_placement(self, pod_id: str, instance_id: str, workspace: str, *, received: bool) -> None:
        """Record the pod's node. Must be called before the pod is sent, so that a crash loses no pod."""
        with self._lock:
            if self.find(pod_id) is None:
                entry = LedgerEntry(instance_id, validate_name(workspace), received=received)
                self._write(pod_id, _placement_record(entry), durable=self._syncs_starts)

    def record_possible_receipt(self, pod_id: str) -> bool:
        """Record that the node may have received the pod.

        On Ray, call this before submitting the pod's job. Return False if the pod has no record or has ended.
        """
        with self._lock:
            entry = self.find(pod_id)
            if entry is None or entry.ended is not None:
                return False
            if not entry.received:
                record = _placement_record(replace(entry, received=True))
                self._write(pod_id, record, durable=self._syncs_starts)
            return True

    def sync(self, pod_id: str) -> None:
        """Write the pod's record, if there is one, to disk."""
        with suppress(FileNotFoundError):
            sync(str(self._pods / validate_name(pod_id)))
            sync_directory(str(self._pods))

    def end_unstarted_pod(self, pod_id: str) -> None:
        """Record that a pod was stopped before it started, unless a node may already have received it."""
        report = PodReport(
            PodState.EXITED, ended_at=datetime.fromtimestamp(time.time(), UTC), cause=PodCause.STOPPED,
            message="stopped before it started",
        )  # fmt: skip
        with self._lock:
            entry = self.find(pod_id) or LedgerEntry("", "", received=False)
            if entry.ended is None and not entry.received:
                self._write(pod_id, [*_placement_record(entry), _report_field("ended", report)])

    def save_expected_report(self, pod_id: str, report: PodReport, *, durable: bool) -> None:
        """Save the final report of a pod before Berth terminates it, so that the reason survives a crash."""
        with self._lock:
            entry = self.find(pod_id)
            if entry is not None and entry.ended is None and entry.planned != report:
                self._write(pod_id, _placement_record(replace(entry, planned=report)), durable=durable)

    def record_final_report(self, pod_id: str, report: PodReport) -> PodReport:
        """Record the pod's final report, and return the effective report.

        A report recorded earlier takes precedence.
        """
        with self._lock:
            entry = self.find(pod_id)
            if entry is None or entry.ended is not None:
                return report if entry is None or entry.ended is None else entry.ended
            ended = replace(entry, planned=None)
            self._write(pod_id, [*_placement_record(ended), _report_field("ended", report)])
            return report

    def forget(self, pod_id: str) -> None:
        """Delete the pod's record but not its log."""
        log_path = self.log_path(pod_id)
        if not log_path.exists():
            log_path.touch(mode=0o600)
        (self._pods / validate_name(pod_id)).unlink(missing_ok=True)

    def log_path(self, pod_id: str) -> Path:
        """Return the local path of a pod's log. The file exists once the log has been fetched from the
        node.
        """
        return self._logs / validate_name(pod_id)

    def save_log(
        self, pod_id: str, chunks: Iterable[tuple[int, bytes]], read_times: Callable[[int], Sequence[LogTime]]
    ) -> None:
        """Store chunks of a log at their offsets, and the times when they were written.

        Gaps become holes in the file. `read_times(end)` returns the times of the bytes before `end`.
        """
        log_path, draft = (
            self.log_path(pod_id),
            self._logs / f".{validate_name(pod_id)}.{threading.get_ident()}",
        )
        end = 0
        with draft.open("wb") as file:
            for offset, data in chunks:
                if offset > end:
                    hole = [("start", str(end)), ("end", str(offset))]
                    write_record(f"{log_path}.gap", hole, durable=False)
                file.seek(offset)
                file.write(data)
                end = offset + len(data)
        if end:
            store_times(log_path, read_times(end))
        draft.rename(log_path)

    def drop_log(self, pod_id: str) -> None:
        local_log.delete_log(self.log_path(pod_id))

    def _write(self, pod_id: str, record: Record, *, durable: bool = True) -> None:
        write_record(str(self._pods / validate_name(pod_id)), record, durable)


def _placement_record(entry: LedgerEntry) -> Record:
    placed = [("instance", entry.instance_id), ("workspace", entry.workspace)]
    if entry.planned is not None:
        placed.append(_report_field("planned", entry.planned))
    return placed if entry.received else [*placed, ("received", "no")]


def _report_field(name: str, report: PodReport) -> tuple[str, str]:
    return name, json.dumps(encode_report(report)).replace("\\u0000", "?")


def _is_temporary_file(name: str) -> bool:
    return name.startswith(".") or name.endswith(".new")
