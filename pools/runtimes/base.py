"""The runtime port: the contract for running pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol


@dataclass(frozen=True)
class PodOrder:
    """One attempt at one replica, identified by `pod_id`; another attempt has another id.

    `workspace` names the directory that the workload's pods share and that outlives them. `devices` are
    physical ids; without any, the pod sees no GPU. `device_milli` is the part of each device that the pod may
    use, in thousandths. `instance_id` is the node's. `environment` is the digest of the environment installed
    there, or empty for the machine's own programs. `start_in` is the document's `workspace`: the pod starts
    in that directory of the node if it exists, otherwise in one of that name inside the workload's workspace.
    """

    pod_id: str
    name: str
    workspace: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str | None
    instance_id: str
    devices: tuple[str, ...]
    grace_seconds: int
    device_milli: int = 1000
    environment: str = ""
    start_in: str = ""


class PodState(str, Enum):
    __str__ = str.__str__

    UNKNOWN = "unknown"
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class PodCause(str, Enum):
    """Why a pod ended, if its command did not end by itself."""

    __str__ = str.__str__

    NONE = ""
    STOPPED = "stopped"  # stopped on request
    HOST_STOPPED = "host_stopped"  # the process that the pods are tied to ended
    LOST = "lost"  # the end was not observed
    START_FAILED = "start_failed"


@dataclass(frozen=True)
class PodReport:
    """State of a pod; of `exit_code` and `signal` at most one is set, and only after the command exited."""

    state: PodState
    exit_code: int | None = None
    signal: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cause: PodCause = PodCause.NONE
    message: str = ""


@dataclass(frozen=True)
class LogChunk:
    """Bytes `offset` .. `next_offset` of a log that is `size` bytes long by now.

    Offsets count the bytes that the pod wrote. `complete` is true if the pod has ended and `next_offset` is
    the end of the log.
    """

    data: bytes
    offset: int
    next_offset: int
    size: int
    complete: bool


@dataclass(frozen=True)
class PodUse:
    """Use of one pod.

    `cpu_seconds` is the CPU time of all its processes since it started, including ended ones. `memory_mib` is
    the current memory of its running processes.
    """

    cpu_seconds: float
    memory_mib: int


@dataclass(frozen=True)
class DeviceUse:
    """Use of one GPU by any process.

    `busy_milli` is the part of the last sampling period in which a kernel ran, in thousandths. A value that
    the device does not report, for example because it is partitioned, is None.
    """

    index: int
    identity: str
    busy_milli: int | None
    memory_mib: int | None


@dataclass(frozen=True)
class Measured:
    """Use by pod and by instance; a missing entry was not measured, which does not mean that it is idle."""

    pods: Mapping[str, PodUse]
    devices: Mapping[str, tuple[DeviceUse, ...]]


class RuntimeFailure(Exception):
    """The runtime itself is broken (a full disk, an unreachable head): try again later."""


class Runtime(Protocol):
    """Starts pods and reports how they ended, also after a restart of the calling process."""

    def start(self, order: PodOrder) -> None:
        """Start the pod; return once the order is durable, which may be before the command runs.

        Idempotent by `pod_id`: a pod that runs or has ended is left alone, and one that was stopped before it
        started never starts. A command that cannot be started is reported as `start_failed`, not raised.
        Raises RuntimeFailure.
        """
        ...

    def stop(self, pod_id: str, grace_seconds: int) -> None:
        """End all processes of the pod with SIGTERM, and SIGKILL after the grace period; return at once.

        Idempotent; a shorter grace period than before applies. An unknown id is recorded as stopped.
        """
        ...

    def look(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        """Return a report for each of these pods; ids without a record are reported as `unknown`."""
        ...

    def list_pods(self) -> tuple[str, ...]:
        """Return the ids of all pods that were not forgotten, sorted."""
        ...

    def forget(self, pod_id: str) -> None:
        """Delete the record of an ended pod but not its log; ignore a pod that has not ended."""
        ...

    def drop_log(self, pod_id: str) -> None:
        """Delete the log of a forgotten pod. After that no trace of the id is left."""
        ...

    def drop_workspace(self, workspace: str) -> None:
        """Delete the directory that a workload's pods shared, with its content."""
        ...

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        """Return at most `limit` bytes from `offset` on, or from the oldest byte that still exists."""
        ...

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        """Return the last `lines` lines that still exist; of very long lines only the end."""
        ...

    def checkpointed_at(self, workspace: str) -> datetime | None:
        """Return when a pod last touched `.berth-checkpoint` in this workspace, or None if none has."""
        ...

    def measure(self, pod_ids: Collection[str], instance_ids: Collection[str]) -> Measured:
        """Measure these pods' processes and these instances' GPUs.

        Omits pods that do not run, nodes that do not answer and machines that report no GPU use. Read-only.
        """
        ...

    def rendezvous(self) -> tuple[str, int]:
        """Return an address and a free port for the rendezvous of one gang.

        An empty address stands for the node of rank 0.
        """
        ...

    def wake_fds(self) -> tuple[int, ...]:
        """Return file descriptors, possibly none, that become readable when a pod changes its state."""
        ...

    def drain_wakes(self) -> None:
        """Read all pending wake-ups from the descriptors."""
        ...
