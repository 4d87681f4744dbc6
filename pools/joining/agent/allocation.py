"""Detect which resources a cluster has allocated to the agent's job, and when the job ends."""

from __future__ import annotations

import os
import signal
import threading

from .jobs import start_time

# The pilot job that runs the agent sets these environment variables.
INSTANCE_ID = os.environ.get("BERTH_INSTANCE_ID", "")
ANCHOR = os.environ.get("BERTH_ANCHOR", "")  # process that runs the job's script, as PID:START_TIME


ENDS_NOW = "the cluster is ending the allocation"


class JobEnding(Exception):
    """Raised if the agent's job is being terminated. All of its processes will be killed shortly."""


class TerminationSignals:
    """Signals that announce the end of the agent's job.

    USR1 comes early. TERM comes shortly before the processes are killed.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._event = threading.Event()
        if INSTANCE_ID:
            signal.signal(signal.SIGUSR1, self._on_notice)
            signal.signal(signal.SIGTERM, self._on_terminate)

    def _on_notice(self, *_: object) -> None:
        self.reason = "the cluster announces the end of the allocation"

    def _on_terminate(self, *_: object) -> None:
        self.reason = ENDS_NOW
        self._event.set()

    def wait_for_end(self, seconds: float) -> None:
        """Wait for `seconds`, or until the job is about to end."""
        self._event.wait(seconds)

    @property
    def is_job_terminating(self) -> bool:
        """Whether the job is being terminated."""
        return self._event.is_set()


def has_job_ended() -> bool:
    """Return whether the job's script has ended.

    The agent can outlive the script, because it runs in a separate session.
    """
    pid, _, start = ANCHOR.partition(":")
    return bool(INSTANCE_ID) and pid.isdigit() and start_time(int(pid)) != start


def allocated_gpus(gpus: list[dict[str, str]]) -> list[str]:
    """Return the device IDs of the GPUs allocated to the job. Outside a job, return those of all GPUs.

    The cluster lists the devices by UUID or by index. If the job sees only its own devices, the indexes refer
    to these devices.
    """
    uuids = [gpu["uuid"] for gpu in gpus]
    if not INSTANCE_ID:
        return uuids
    listed = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("ROCR_VISIBLE_DEVICES") or ""
    names = [name.strip() for name in listed.split(",") if name.strip() not in ("", "NoDevFiles")]
    return [uuids[int(name)] if name.isdigit() and int(name) < len(uuids) else name for name in names]


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    count = len(os.sched_getaffinity(0))
    return min(count, _read_number("SLURM_CPUS_ON_NODE") or count) if INSTANCE_ID else count


def usable_memory_mib(total: int) -> int:
    """Return the memory in MiB that this process may use. `total` is the machine's memory."""
    return min(total, _read_number("SLURM_MEM_PER_NODE") or total) if INSTANCE_ID else total


def _read_number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else 0
