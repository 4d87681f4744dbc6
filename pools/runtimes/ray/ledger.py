"""Berth's record of pods per Ray node, one file each.

A file per pod, written whole or not at all: any process may look, and a new one goes on where one was killed.
"""

import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pools.runtimes.base import PodCause, PodReport, PodState
from pools.runtimes.local import checked_name
from pools.runtimes.ray.wire import report_in, report_out
from pools.runtimes.shim.records import Record, read_record, write_record


@dataclass(frozen=True, slots=True)
class Entry:
    """`instance_id` is empty for a pod that was stopped before anybody heard of it. `received`: its node
    may have it; without that, no job was ever submitted for the pod, and it cannot run."""

    instance_id: str
    workspace: str
    ended: PodReport | None = None
    received: bool = True


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
        return Entry(told["instance"], told["workspace"], ended, told.get("received") != "no")

    def ids(self) -> tuple[str, ...]:
        return tuple(sorted(entry.name for entry in os.scandir(self._pods) if not _is_draft(entry.name)))

    def place(self, pod_id: str, instance_id: str, workspace: str, *, received: bool) -> None:
        """Before its node hears of it: whatever happens then, we know where to ask."""
        with self._lock:
            if self.find(pod_id) is None:
                self._write(pod_id, _placed(Entry(instance_id, checked_name(workspace), received=received)))

    def receive(self, pod_id: str) -> bool:
        """Note that the node has the pod, before its job is submitted. False for a pod that has ended."""
        with self._lock:
            entry = self.find(pod_id)
            if entry is None or entry.ended is not None:
                return False
            if not entry.received:
                self._write(pod_id, _placed(replace(entry, received=True)))
            return True

    def stop_before_start(self, pod_id: str) -> None:
        """End a pod that no node has received; one that a node may have is left alone."""
        report = PodReport(
            PodState.EXITED, ended_at=datetime.fromtimestamp(time.time(), UTC), cause=PodCause.STOPPED,
            message="stopped before it started",
        )  # fmt: skip
        with self._lock:
            entry = self.find(pod_id) or Entry("", "", received=False)
            if entry.ended is None and not entry.received:
                self._write(pod_id, [*_placed(entry), _ended(report)])

    def end(self, pod_id: str, report: PodReport) -> PodReport:
        """The first end that was seen is the one that holds."""
        with self._lock:
            entry = self.find(pod_id)
            if entry is None or entry.ended is not None:
                return report if entry is None or entry.ended is None else entry.ended
            self._write(pod_id, [*_placed(entry), _ended(report)])
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


def _placed(entry: Entry) -> Record:
    placed = [("instance", entry.instance_id), ("workspace", entry.workspace)]
    return placed if entry.received else [*placed, ("received", "no")]


def _ended(report: PodReport) -> tuple[str, str]:
    return "ended", json.dumps(report_out(report)).replace("\\u0000", "?")


def _is_draft(name: str) -> bool:
    return name.startswith(".") or name.endswith(".new")
