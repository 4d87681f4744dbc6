"""The runtime port: the contract for running pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol


@dataclass(frozen=True)
class PodOrder:
    """One attempt at one replica. `pod_id` names it for ever; a second attempt has another id.

    `workspace` names the directory that the workload's pods share and that outlives them. `devices` are
    physical ids; none means that the pod sees no GPU, `device_milli` how much of each it may use, in
    thousandths. `instance_id` is the node's. `environment` is the digest of what was installed there for it;
    empty for what the machine has anyway. `start_in` is the document's `workspace`: the pod starts in that
    directory of the node if it exists, otherwise in one of that name inside the workload's own workspace.
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
    """Why a pod ended, where it was not the command's own doing."""

    __str__ = str.__str__

    NONE = ""
    STOPPED = "stopped"  # somebody asked for it
    HOST_STOPPED = "host_stopped"  # what the pods were tied to went away
    LOST = "lost"  # nobody was there to see how it ended
    START_FAILED = "start_failed"


@dataclass(frozen=True)
class PodReport:
    """`exit_code` and `signal` are the command's own; at most one of them is set, and only when exited."""

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

    Offsets count what the pod wrote. `complete`: the pod has ended and `next_offset` is the end.
    """

    data: bytes
    offset: int
    next_offset: int
    size: int
    complete: bool


@dataclass(frozen=True)
class PodUse:
    """`cpu_seconds` is what all its processes used since it started, those that have ended too;
    `memory_mib` what those there are hold now."""

    cpu_seconds: float
    memory_mib: int


@dataclass(frozen=True)
class DeviceUse:
    """Of one GPU, whoever uses it: in how many thousandths of the last moments something ran on it, and how
    much of its memory is taken. None is what it does not tell (a part of a device, say)."""

    index: int
    identity: str
    busy_milli: int | None
    memory_mib: int | None


@dataclass(frozen=True)
class Measured:
    """By pod and by instance. Who is missing was not measured, which is not the same as nothing used."""

    pods: Mapping[str, PodUse]
    devices: Mapping[str, tuple[DeviceUse, ...]]


class RuntimeFailure(Exception):
    """The runtime itself is broken (a full disk, an unreachable head): try again later."""


class Runtime(Protocol):
    """Starts pods and knows how they ended, also across a restart of whoever asked."""

    def start(self, order: PodOrder) -> None:
        """See to it that the pod runs. Returns once the order is durable, not once the command runs.

        Idempotent by `pod_id`, whatever happened before: an id that ran, runs or ended is left alone, and
        one that was stopped first never starts. A command that cannot be started is a report
        (`start_failed`), not an exception.
        """
        ...

    def stop(self, pod_id: str, grace_seconds: int) -> None:
        """End the pod with all its processes: SIGTERM, and SIGKILL after the grace. Returns at once.

        Idempotent; a shorter grace than before shortens it. An unknown id is remembered as stopped.
        """
        ...

    def look(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        """How each of these pods is now; ids never seen are reported `unknown`."""
        ...

    def known(self) -> tuple[str, ...]:
        """Every id that `forget` was not called for, sorted."""
        ...

    def forget(self, pod_id: str) -> None:
        """Drop what is kept of an ended pod, all but its log. A pod that has not ended is left alone."""
        ...

    def drop_log(self, pod_id: str) -> None:
        """Drop the log of a forgotten pod too. From then on nothing tells that the id was ever used."""
        ...

    def drop_workspace(self, workspace: str) -> None:
        """Drop the directory that a workload's pods shared, with all they left there."""
        ...

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        """At most `limit` bytes from `offset` on; before the oldest kept byte, from that one on."""
        ...

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        """The last `lines` lines, of what is kept; of very long ones only the end."""
        ...

    def checkpointed_at(self, workspace: str) -> datetime | None:
        """When a pod of this workspace last said that its work is saved, by touching the file
        `.berth-checkpoint` there; None while none has."""
        ...

    def measure(self, pod_ids: Collection[str], instance_ids: Collection[str]) -> Measured:
        """What these pods' processes and these instances' GPUs use now. Pods that do not run, nodes that do
        not answer and machines that tell nothing of their GPUs are left out. Changes nothing."""
        ...

    def rendezvous(self) -> tuple[str, int]:
        """An address and a port that are free now, for the ranks of one gang to meet at. An empty address is
        that of the node where rank 0 will stand."""
        ...

    def wake_fds(self) -> tuple[int, ...]:
        """File descriptors that become readable when some pod changed its state; may be none."""
        ...

    def drain_wakes(self) -> None:
        """Empty them."""
        ...
