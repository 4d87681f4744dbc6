"""Run a probe pod on each new Ray node, which accepts pods once the probe has succeeded.

A probe pod starts like any other pod, on all devices. It is repeated until it succeeds or the boot times out.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pools.runtimes.base import PodReport, PodSpec, PodState, Runtime, RuntimeFailure
from pools.runtimes.enclosure.levels import PROBE_PROJECT, PROBE_UID, PROBE_WORKSPACE

PREFIX = "probe-"
POLL_SECONDS = 0.1
WAIT_SECONDS = 2.0  # maximum duration of a check; longer probes continue in the next check
TIMEOUT_SECONDS = 120.0
RETRY_SECONDS = 10.0
THREADS = 16
# A broken driver leaves the device files in place, so the devices must also respond.
COMMAND = """
file=$(mktemp -p "$BERTH_WORKSPACE") && rm "$file" || exit 1
if [ -n "$CUDA_VISIBLE_DEVICES" ] && command -v nvidia-smi > /dev/null; then nvidia-smi -L; fi
"""


class ProbePods:
    """Pods that probe the nodes of all Ray pools. Thread-safe.

    `stored()` returns the IDs of all recorded pods, which include an earlier process's probes. `existing()`
    returns the instances of all pools. `drop_workspace(instance_id, name)` deletes a workspace of one node.
    """

    def __init__(
        self, runtime: Runtime, stored: Callable[[], Iterable[str]], existing: Callable[[], Collection[str]],
        drop_workspace: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._runtime, self._stored, self._existing = runtime, stored, existing
        self._drop_workspace = drop_workspace
        # Use separate threads: a probe waits for work on the runtime's own threads and could block it.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ray-probes")
        self._clearing = threading.Lock()
        self._lock = threading.Lock()  # lock for the probe results
        self._passed: set[str] = set()
        self._failures: dict[str, tuple[float, str]] = {}

    def unready_reasons(self, devices: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
        """Probe the instances. Return why instances cannot run pods yet, keyed by instance ID."""
        # Read the stored probes first, because another pool may add a node and start its probe in between.
        stored = list(self._stored())
        existing = {*self._existing(), *devices}
        self._clear_leftovers(stored, existing)
        with self._lock:
            self._passed &= existing
            self._failures = {key: failure for key, failure in self._failures.items() if key in existing}
            due = [instance for instance in devices if instance not in self._passed]
        pods = {instance: _instance_pods(instance, stored) for instance in due}
        results = self._threads.map(
            lambda instance: self._probe(instance, devices[instance], pods[instance]), due
        )
        return {instance: reason for instance, reason in zip(due, results, strict=True) if reason}

    def _probe(self, instance: str, devices: tuple[str, ...], pods: list[str]) -> str:
        """Run the probe. Return why the instance cannot run pods yet, or ""."""
        with self._lock:
            failed_at, failure = self._failures.get(instance, (0.0, ""))
        if not pods and failure and time.time() < failed_at + RETRY_SECONDS:
            return failure
        pod_id = pods[-1] if pods else f"{_probe_prefix(instance)}{time.time_ns()}"
        try:
            if self._runtime.get_reports([pod_id])[pod_id].state is PodState.UNKNOWN:
                # This call also resumes an interrupted start.
                self._runtime.start(_pod_spec(pod_id, instance, devices))
            report = self._wait(pod_id)
            if report.state is PodState.EXITED:
                reason = self._failure_message(pod_id, report)
                self._clean_up(instance, pod_id)
            elif time.time_ns() > int(pod_id.rpartition("-")[2]) + TIMEOUT_SECONDS * 1e9:
                self._runtime.stop(pod_id, 0)
                reason = f"the probe pod did not finish within {TIMEOUT_SECONDS:.0f} s"
            else:
                return failure or f"the probe pod is {report.state}"
        except RuntimeFailure as error:
            return f"the probe pod could not be run: {error}"
        with self._lock:
            if reason:
                self._failures[instance] = (time.time(), reason)
            else:
                self._passed.add(instance)
        return reason

    def _wait(self, pod_id: str) -> PodReport:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            report = self._runtime.get_reports([pod_id])[pod_id]
            if report.state is PodState.EXITED or time.monotonic() > deadline:
                return report
            time.sleep(POLL_SECONDS)

    def _failure_message(self, pod_id: str, report: PodReport) -> str:
        if report.exit_code == 0:
            return ""
        output = self._runtime.tail_log(pod_id, 1).data.decode(errors="replace").strip()
        end = f"exit code {report.exit_code}" if report.exit_code else f"signal {report.signal}"
        reason = report.message or (f"{end}: {output}" if output else end)
        return f"the probe pod failed: {reason}"

    def _clean_up(self, instance: str, pod_id: str) -> None:
        self._runtime.forget(pod_id)
        self._runtime.drop_log(pod_id)
        self._drop_workspace(instance, PROBE_WORKSPACE)

    def _clear_leftovers(self, stored: list[str], existing: Iterable[str]) -> None:
        """Delete all probe pods except the latest of each existing instance."""
        current = {probes[-1] for instance in existing if (probes := _instance_pods(instance, stored))}
        leftovers = [pod_id for pod_id in stored if pod_id.startswith(PREFIX) and pod_id not in current]
        if not leftovers or not self._clearing.acquire(blocking=False):
            return
        try:
            for pod_id in leftovers:
                self._delete(pod_id)
        finally:
            self._clearing.release()

    def _delete(self, pod_id: str) -> None:
        try:
            self._runtime.stop(pod_id, 0)
            self._runtime.forget(pod_id)
            self._runtime.drop_log(pod_id)
        except RuntimeFailure:
            pass  # the node is not responding, so the next check tries again


def _instance_pods(instance: str, pod_ids: Iterable[str]) -> list[str]:
    return sorted(pod_id for pod_id in pod_ids if pod_id.startswith(_probe_prefix(instance)))


def _probe_prefix(instance: str) -> str:
    return f"{PREFIX}{hashlib.sha256(instance.encode()).hexdigest()[:16]}-"


def _pod_spec(pod_id: str, instance: str, devices: tuple[str, ...]) -> PodSpec:
    return PodSpec(
        pod_id=pod_id, name="probe", workspace=PROBE_WORKSPACE, command=("/bin/sh", "-c", COMMAND), env={},
        working_dir=None, instance_id=instance, devices=devices, grace_seconds=0, project=PROBE_PROJECT,
        uid=PROBE_UID,
    )  # fmt: skip
