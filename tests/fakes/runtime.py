"""A scriptable in-memory runtime for tests and simulations."""

import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from berth.core.clock import Clock
from pools.runtimes.base import (
    ChannelRejected,
    ClusterQuotas,
    DeviceUsage,
    LogChunk,
    LogTime,
    Measurements,
    PodCause,
    PodReport,
    PodSpec,
    PodState,
    PodUsage,
    StopNotice,
)
from pools.runtimes.enclosure.levels import Isolation, IsolationLevel
from pools.runtimes.files.base import FilesNotFound, PodFile, PodFiles, VolumeChanges
from pools.runtimes.local_log import last_lines_offset
from tests.fakes.clock import FixedClock
from tests.support.present import present

SIGTERM, SIGKILL = 15, 9


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The time after which a pod exits by itself, and its exit code."""

    seconds: float
    exit_code: int = 0


@dataclass(slots=True)
class _Pod:
    order: PodSpec | None
    report: PodReport
    log: bytearray = field(default_factory=bytearray)
    kill_at: datetime | None = None
    term_at: datetime | None = None
    grace_seconds: int = 0
    ends_at: datetime | None = None
    ends_with: int = 0


class FakeRuntime:
    """An in-memory runtime.

    Unless `runs_immediately` is set, pods start when `run` is called. Pods in `stubborn` ignore SIGTERM. Time
    follows `clock`. `get_reports` ends the pods whose lifetime or grace period is over.
    """

    starts_in_background = False

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        runs_immediately: bool = True,
        lifetime: Callable[[PodSpec], Lifetime | None] = lambda order: None,
    ) -> None:
        self.clock: Clock = clock or FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.runs_immediately, self.lifetime = runs_immediately, lifetime
        self.stubborn: set[str] = set()
        self.noticing: set[str] = set()
        self.checkpoints: dict[str, datetime] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.volume_changes: dict[tuple[str, str], VolumeChanges] = {}
        self.uses: dict[str, PodUsage] = {}
        self.devices: dict[str, tuple[DeviceUsage, ...]] = {}
        self.isolation = Isolation(IsolationLevel.USERS)
        self.cluster_quotas = ClusterQuotas()
        self.calls: list[tuple[str, object]] = []
        self.errors_by_call: dict[str, deque[Exception]] = {}
        self._pods: dict[str, _Pod] = {}
        self._logs: dict[str, bytes] = {}
        self.records_times = True
        self._log_times: dict[str, list[LogTime]] = {}
        self._port = 20000
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    # --- controlled by the test

    def next(self, call: str, *errors: Exception) -> None:
        """Set the errors that the next calls of `start`, `stop` or `get_reports` raise, one per call."""
        self.errors_by_call.setdefault(call, deque()).extend(errors)

    def run(self, pod_id: str) -> None:
        pod = self._pods[pod_id]
        now = self.clock.now()
        pod.report = PodReport(PodState.RUNNING, started_at=now)
        lifetime = self.lifetime(pod.order) if pod.order else None
        if lifetime is not None:
            pod.ends_at = now + timedelta(seconds=lifetime.seconds)
            pod.ends_with = lifetime.exit_code
        self._wake_waiters()

    def report_progress(self, pod_id: str, progress: str, *, pulls_image: bool = False) -> None:
        pod = self._pods[pod_id]
        pod.report = replace(pod.report, progress=progress, pulls_image=pulls_image)
        self._wake_waiters()

    def end(
        self,
        pod_id: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        cause: PodCause = PodCause.NONE,
        message: str = "",
        memory_peak_mib: int | None = None,
    ) -> None:
        pod = self._pods[pod_id]
        pod.report = replace(
            pod.report, state=PodState.EXITED, exit_code=exit_code, signal=signal, cause=cause,
            message=message, ended_at=self.clock.now(), memory_peak_mib=memory_peak_mib,
        )  # fmt: skip
        self._wake_waiters()

    def warn(self, pod_id: str, text: str) -> None:
        pod = self._pods[pod_id]
        pod.report = replace(pod.report, warnings=pod.report.warnings + 1, warning=text)
        self._wake_waiters()

    def write(self, pod_id: str, data: bytes) -> None:
        self._pods[pod_id].log += data
        if not self.records_times:
            return
        moment = int(self.clock.now().timestamp() * 1000)
        self._log_times.setdefault(pod_id, []).append((len(self._pods[pod_id].log), moment))

    def was_started(self, pod_id: str) -> bool:
        """Return whether the pod was started. A pod that was only stopped also has an entry."""
        return pod_id in self._pods and self._pods[pod_id].order is not None

    def order(self, pod_id: str) -> PodSpec:
        return present(self._pods[pod_id].order)

    def running(self) -> tuple[str, ...]:
        return tuple(sorted(i for i, pod in self._pods.items() if pod.report.state == PodState.RUNNING))

    def lose_all_pods(self) -> None:
        """Forget every pod, as if the machine were lost."""
        self._pods.clear()

    # --- the port

    def start(self, order: PodSpec) -> None:
        self._record_call("start", order.pod_id)
        if order.pod_id in self._pods or order.pod_id in self._logs:
            return
        self._pods[order.pod_id] = _Pod(order, PodReport(PodState.STARTING))
        fault = _fault(order)
        if fault:
            self.end(order.pod_id, cause=PodCause.START_FAILED, message=fault)
        elif self.runs_immediately:
            self.run(order.pod_id)

    def begin_start(self, order: PodSpec) -> None:
        # Pods are started one at a time.
        pass

    def stop(self, pod_id: str, grace_seconds: int, notice: StopNotice | None = None) -> None:
        self._record_call("stop", pod_id)
        if pod_id in self._logs:
            return
        pod = self._pods.setdefault(pod_id, _Pod(None, PodReport(PodState.STARTING)))
        if pod.report.state == PodState.EXITED:
            return
        if pod.report.state == PodState.STARTING:
            self.end(pod_id, cause=PodCause.STOPPED, message="stopped before it started")
        elif notice is not None:
            self._send_notice(pod_id, pod, grace_seconds, notice)
        else:
            self._terminate(pod_id, pod, grace_seconds)

    def _send_notice(self, pod_id: str, pod: _Pod, grace_seconds: int, notice: StopNotice) -> None:
        # Pods in `noticing` write a line to their logs.
        if pod.term_at is None and pod.kill_at is None:
            self.calls.append(("notice", (pod_id, notice.signal)))
            pod.log += b"noticed\n" if pod_id in self.noticing else b""
        due = self.clock.now() + timedelta(seconds=notice.lead_seconds)
        pod.term_at, pod.grace_seconds = min(pod.term_at or due, due), grace_seconds

    def _terminate(self, pod_id: str, pod: _Pod, grace_seconds: int) -> None:
        pod.term_at = None
        if pod_id in self.stubborn:
            due = self.clock.now() + timedelta(seconds=max(grace_seconds, 0))
            pod.kill_at = min(pod.kill_at or due, due)
        else:
            self.end(pod_id, signal=SIGTERM, cause=PodCause.STOPPED)

    def get_reports(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        self._record_call("look", tuple(pod_ids))
        for pod_id in pod_ids:
            if pod_id in self._pods:
                self._apply_elapsed_time(pod_id, self._pods[pod_id])
        unknown = PodReport(PodState.UNKNOWN)
        return {i: self._pods[i].report if i in self._pods else unknown for i in pod_ids}

    def list_pods(self) -> tuple[str, ...]:
        return tuple(sorted(self._pods))

    def forget_in_background(self, pod_id: str) -> None:
        # Pods are forgotten one at a time.
        pass

    def forget(self, pod_id: str) -> None:
        pod = self._pods.get(pod_id)
        if pod is not None and pod.report.state == PodState.EXITED:
            self._logs[pod_id] = bytes(pod.log)
            del self._pods[pod_id]

    def drop_log(self, pod_id: str) -> None:
        self._logs.pop(pod_id, None)
        self._log_times.pop(pod_id, None)

    def drop_workspace(self, workspace: str) -> None:
        self._record_call("drop_workspace", workspace)

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        data, ended = self._log(pod_id)
        begin = min(max(offset, 0), len(data))
        chunk = data[begin : begin + max(limit, 0)]
        end = begin + len(chunk)
        return LogChunk(chunk, begin, end, len(data), ended and end == len(data))

    def read_log_times(self, pod_id: str, start: int, end: int) -> Sequence[LogTime]:
        times = self._log_times.get(pod_id, [])
        first = sum(part_end <= start for part_end, _ in times)
        last = sum(part_end < end for part_end, _ in times)
        return times[first : last + 1]

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        data, ended = self._log(pod_id)
        begin = last_lines_offset(data, lines)
        return LogChunk(data[begin:], begin, len(data), len(data), ended)

    def list_files(self, pod_id: str, paths: Collection[str]) -> PodFiles:
        self._record_call("list_files", pod_id)
        stored = self._files_of(pod_id)
        chosen = [each for each in sorted(stored) if any(f"{each}/".startswith(f"{path}/") for path in paths)]
        return PodFiles(tuple(PodFile(each, len(stored[each]), False) for each in chosen), {})

    def read_file(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        self._record_call("read_file", pod_id)
        return self._files_of(pod_id)[path][offset : offset + limit]

    def list_retained_files(self, pod_id: str, workspace: str, path: str) -> PodFiles:
        return self.list_files(pod_id, [path] if path else list(self._files_of(pod_id)))

    def read_retained_file(self, pod_id: str, workspace: str, path: str, offset: int, limit: int) -> bytes:
        return self.read_file(pod_id, path, offset, limit)

    def list_volume_changes(self, pod_id: str, volume: str) -> VolumeChanges:
        self._record_call("list_volume_changes", pod_id)
        self._files_of(pod_id)
        return self.volume_changes.get((pod_id, volume), VolumeChanges())

    def read_volume_file(self, pod_id: str, volume: str, path: str, offset: int, limit: int) -> bytes:
        return self.read_file(pod_id, f"{volume}/{path}", offset, limit)

    def _files_of(self, pod_id: str) -> dict[str, bytes]:
        if pod_id not in self._pods:
            raise FilesNotFound("the pod's files no longer exist")
        return self.files.get(pod_id, {})

    def checkpointed_at(self, workspace: str) -> datetime | None:
        return self.checkpoints.get(workspace)

    def measure(self, pod_ids: Collection[str], instance_ids: Collection[str]) -> Measurements:
        """Return the usage that the test has set. Other running pods have zero usage."""
        self._record_call("measure", tuple(pod_ids))
        running = set(self.running())
        pods = {i: self.uses.get(i, PodUsage(0.0, 0)) for i in pod_ids if i in running}
        return Measurements(pods, {i: self.devices[i] for i in instance_ids if i in self.devices})

    def get_isolation(self, instance_ids: Collection[str]) -> Mapping[str, Isolation]:
        self._record_call("get_isolation", tuple(instance_ids))
        return dict.fromkeys(instance_ids, self.isolation)

    def get_cluster_quotas(self, pool: str) -> ClusterQuotas:
        del pool
        if self.errors_by_call.get("get_cluster_quotas"):
            raise self.errors_by_call["get_cluster_quotas"].popleft()
        return self.cluster_quotas

    def open_channel(self, pod_id: str) -> socket.socket:
        raise ChannelRejected("simulated pods have no shells")

    def rendezvous(self) -> tuple[str, int]:
        self._port += 1
        return "127.0.0.1", self._port

    def wake_fds(self) -> tuple[int, ...]:
        return (self._wake,)

    def clear_wakeups(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _apply_elapsed_time(self, pod_id: str, pod: _Pod) -> None:
        now = self.clock.now()
        if pod.report.state != PodState.RUNNING:
            return
        if pod.term_at is not None and now >= pod.term_at:
            self._terminate(pod_id, pod, pod.grace_seconds)
        elif pod.kill_at is not None and now >= pod.kill_at:
            self.end(pod_id, signal=SIGKILL, cause=PodCause.STOPPED)
        elif pod.ends_at is not None and now >= pod.ends_at:
            self.end(pod_id, exit_code=pod.ends_with)

    def _log(self, pod_id: str) -> tuple[bytes, bool]:
        pod = self._pods.get(pod_id)
        if pod is None:
            return self._logs.get(pod_id, b""), True
        return bytes(pod.log), pod.report.state == PodState.EXITED

    def _record_call(self, call: str, what: object) -> None:
        self.calls.append((call, what))
        waiting = self.errors_by_call.get(call)
        if waiting:
            raise waiting.popleft()

    def _wake_waiters(self) -> None:
        os.eventfd_write(self._wake, 1)


def _fault(order: PodSpec) -> str:
    if not order.command or not order.command[0]:
        return "the command is empty"
    texts = [*order.command, *order.env, *order.env.values()]
    return (
        "the command and its environment must not contain NUL" if any("\0" in text for text in texts) else ""
    )
