"""Here we keep on Berth's side which node has which pod, how it ended, and the logs that came home.

A file per pod, written whole or not at all: any process may look, and a new one goes on where one was killed.
"""
import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pools.runtimes.base import PodCause, PodReport, PodState
from pools.runtimes.local import checked_name
from pools.runtimes.ray.wire import report_in, report_out
from pools.runtimes.shim.records import Record, read_record, write_record


@dataclass(frozen=True, slots=True)
class Entry:
    """`instance_id` is empty for a pod that was stopped before anybody heard of it."""

    instance_id: str
    workspace: str
    ended: PodReport | None = None


class Ledger:
    def __init__(self, root: Path) -> None:
        self._pods, self._logs = root / "pods", root / "logs"
        for directory in (self._pods, self._logs):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()

    def find(self, pod_id: str) -> Entry | None:
        told = read_record(str(self._pods / checked_name(pod_id)))
        if told is None:
            return None
        ended = report_in(json.loads(told["ended"])) if "ended" in told else None
        return Entry(told["instance"], told["workspace"], ended)

    def ids(self) -> tuple[str, ...]:
        return tuple(sorted(entry.name for entry in os.scandir(self._pods) if not _is_draft(entry.name)))

    def place(self, pod_id: str, instance_id: str, workspace: str) -> None:
        """Before its node hears of it: whatever happens then, we know where to ask."""
        with self._lock:
            if self.find(pod_id) is None:
                self._write(pod_id, [("instance", instance_id), ("workspace", checked_name(workspace))])

    def stop_before_start(self, pod_id: str) -> None:
        message = "stopped before it was started"
        report = PodReport(
            PodState.EXITED, ended_at=datetime.fromtimestamp(time.time(), UTC), cause=PodCause.STOPPED,
            message=message,
        )  # fmt: skip
        with self._lock:
            if self.find(pod_id) is None:
                self._write(pod_id, [("instance", ""), ("workspace", ""), _ended(report)])

    def end(self, pod_id: str, report: PodReport) -> PodReport:
        """The first end that was seen is the one that holds."""
        with self._lock:
            entry = self.find(pod_id)
            if entry is None or entry.ended is not None:
                return report if entry is None or entry.ended is None else entry.ended
            placed = [("instance", entry.instance_id), ("workspace", entry.workspace)]
            self._write(pod_id, [*placed, _ended(report)])
            return report

    def forget(self, pod_id: str) -> None:
        """Its log stays, be it empty."""
        home = self.home(pod_id)
        if not home.exists():
            home.touch(mode=0o600)
        (self._pods / checked_name(pod_id)).unlink(missing_ok=True)

    # --- logs

    def home(self, pod_id: str) -> Path:
        """Where the log is once it came home, whole."""
        return self._logs / checked_name(pod_id)

    def keep_log(self, pod_id: str, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Offsets count what the pod wrote; where one jumps there is a hole."""
        home, draft = self.home(pod_id), self._logs / f".{checked_name(pod_id)}.{threading.get_ident()}"
        end = 0
        with draft.open("wb") as file:
            for offset, data in pieces:
                if offset > end:
                    hole = [("start", str(end)), ("end", str(offset))]
                    write_record(f"{home}.gap", hole, durable=False)
                file.seek(offset)
                file.write(data)
                end = offset + len(data)
        draft.rename(home)

    def drop_log(self, pod_id: str) -> None:
        home = self.home(pod_id)
        Path(f"{home}.gap").unlink(missing_ok=True)
        home.unlink(missing_ok=True)

    def _write(self, pod_id: str, record: Record) -> None:
        write_record(str(self._pods / checked_name(pod_id)), record)


def _ended(report: PodReport) -> tuple[str, str]:
    return "ended", json.dumps(report_out(report)).replace("\\u0000", "?")


def _is_draft(name: str) -> bool:
    return name.startswith(".") or name.endswith(".new")
