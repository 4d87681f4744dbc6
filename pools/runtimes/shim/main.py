"""Run one pod from its spec to its exit record."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import fcntl
import os
import select
import time

from pools.runtimes.shim.enclosure.prepared import PreparedEnclosure
from pools.runtimes.shim.interrupts import Interrupts
from pools.runtimes.shim.limits.checks import Checks
from pools.runtimes.shim.logs.logtimes import LogTimes
from pools.runtimes.shim.logs.podlog import PodLog
from pools.runtimes.shim.pod import MIB, Pod
from pools.runtimes.shim.processes import open_anchor_pidfd
from pools.runtimes.shim.records import Record, read_fields, read_record, write_record
from pools.runtimes.shim.secrets import Secrets
from pools.runtimes.shim.wakes import wake_listeners


def main(directory: str, anchor: str, prepared: PreparedEnclosure | None = None) -> None:
    """Run the pod in the directory, unless another shim already does.

    If `anchor` is not empty, the pod is stopped when the process that it identifies (`pid:start`) exits. The
    pod uses the prepared enclosure if that suits it.
    """
    lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    order = read_fields(f"{directory}/order") or []
    run_pod(directory, order, anchor, prepared)
    wake_listeners(dict(order)["wake_dir"])


def run_pod(directory: str, order: Record, anchor: str, prepared: PreparedEnclosure | None = None) -> None:
    if os.path.exists(f"{directory}/exit"):
        return
    if os.path.exists(f"{directory}/status"):
        return  # an earlier shim was killed, so the pod is reported as lost
    secrets = Secrets(dict(order).get("secrets", ""))
    if os.path.exists(f"{directory}/stop"):
        secrets.delete()
        write_exit(directory, "stopped", message="stopped before it started")
        return
    anchor_fd = open_anchor_pidfd(anchor) if anchor else None
    if anchor and anchor_fd is None:
        secrets.delete()
        write_exit(directory, "host_stopped", message="Berth stopped on this node before the pod started")
        return
    control, signals = _open_control(directory), _catch_signals()
    pod = Pod(directory, order, Interrupts(directory, control, signals, anchor_fd), prepared)
    pod.channels.open()  # clients may connect as soon as the pod is reported as running
    failure = pod.start()
    if failure:
        pod.kill()
        pod.cgroups.remove()
        write_exit(directory, pod.cause or "start_failed", message=failure)
        return
    wake_listeners(pod.order["wake_dir"])
    log_path, log_limit = f"{directory}/log", int(pod.order["log_limit"])
    checks = Checks(pod, PodLog(log_path, log_limit, LogTimes(log_path, log_limit)))
    watch(pod, control, signals, anchor_fd, checks)
    message = checks.message or pod.describe_memory_kills()
    cause = "out_of_memory" if not pod.cause and pod.was_killed_for_memory() else pod.cause
    peak = pod.cgroups.memory_peak()
    pod.cgroups.remove()
    write_exit(directory, cause, pod, message, peak)


def watch(pod: Pod, control: int, signals: int, anchor: int | None, checks: Checks) -> None:
    """Wait until all of the pod's processes have ended. In the meantime, handle stop requests and run
    checks.
    """
    grace = float(pod.order["grace"])
    poller = select.poll()
    for fd in (control, signals, anchor, pod.channels.fd):
        if fd is not None:
            poller.register(fd, select.POLLIN)
    _apply_stop_request(pod)
    pod.reap()
    while not pod.is_over:
        timeout = checks.seconds_left()
        if pod.next_signal_at is not None:
            timeout = min(timeout, pod.next_signal_at - time.monotonic())
        leftover = pod.leftover_process_descriptor()
        if leftover is not None:
            poller.register(leftover, select.POLLIN)
        ready = dict(poller.poll(max(timeout, 0.0) * 1000))
        if leftover is not None:
            poller.unregister(leftover)
            os.close(leftover)
        if signals in ready and signal.SIGTERM in os.read(signals, 4096):
            pod.stop("host_stopped", grace)
        if control in ready:
            os.read(control, 4096)
            _apply_stop_request(pod)
        if anchor is not None and anchor in ready:
            poller.unregister(anchor)
            pod.stop("host_stopped", grace)
        if pod.channels.fd in ready:
            pod.channels.accept()
        pod.reap()
        pod.channels.sweep()
        pod.terminate_after_lead_time()
        checks.run()
    pod.kill()
    checks.log.check()


def _apply_stop_request(pod: Pod) -> None:
    stop = read_record(f"{pod.directory}/stop")
    if stop is not None and pod.wait_status is None:
        pod.stop("stopped", float(stop["grace"]), int(stop.get("signal", "0")), float(stop.get("lead", "0")))


def write_exit(directory: str, cause: str, pod: Pod | None = None, message: str = "", peak: int = 0) -> None:
    """Write the exit record. `peak` is the pod's peak memory usage in bytes, or 0 if unknown."""
    record = [("cause", cause), ("ended_at", repr(time.time())), ("message", message.replace("\0", "?"))]
    if pod is not None and pod.wait_status is not None:
        code = os.waitstatus_to_exitcode(pod.wait_status)
        record.append(("exit_code", str(code)) if code >= 0 else ("signal", str(-code)))
        record.append(("started_at", repr(pod.started_at)))
    if peak:
        record.append(("memory_peak_mib", str(-(-peak // MIB))))
    while True:
        try:
            return write_record(f"{directory}/exit", record)
        except OSError:  # retry, for example on a full disk, because the exit code must not be lost
            if not os.path.isdir(directory):
                return None  # the node has been deleted, so no process will read the exit code
            time.sleep(1.0)


def _open_control(directory: str) -> int:
    """Open the pipe that announces stop records.

    The pipe is also open for writing, so that reading never reaches end-of-file.
    """
    path = f"{directory}/control"
    if not os.path.exists(path):
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def _catch_signals() -> int:
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return readable
