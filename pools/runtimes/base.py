"""Interface that every runtime implements: start pods, stop them, and report on them."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from pools.runtimes.enclosure.levels import Isolation
from pools.runtimes.files.base import PodFileReader


@dataclass(frozen=True)
class VolumeMount:
    """Mount of the node's directory `source` at `path` in a pod.

    On Kubernetes, `source` may also be nfs://SERVER/PATH. On other runtimes, it may be s3://BUCKET/PREFIX,
    which the node fetches before the pod starts. `cache` identifies such an S3 source on the node.
    """

    name: str
    source: str
    path: str
    is_writable: bool = False
    cache: str = ""


@dataclass(frozen=True)
class PodSpec:
    """Instruction to a runtime to run one pod.

    A restarted replica is a new pod with a new `pod_id`. `workspace` names the directory that the workload's
    pods share and that outlives them. `devices` are physical IDs, and `device_milli` is the usable share of
    each in thousandths. `environment` is a digest, or empty for the machine's own programs. The pod starts in
    the directory `start_in` on the node or, if the node has no such directory, in the workspace. `uid` is the
    Unix user of the project's pods. Limits are 0 if there are none. A node that cannot enforce a limit
    rejects the pod, unless `optional_limits` (`memory`, `cpu`) names it. `workspace_limit_mib` also applies
    to the pod's own directories. Downloads from `code_url` (a tar archive) and `volumes_url` need
    `download_secret` as the bearer token and, unless it is empty, `download_ca`. `secret_env` overrides
    `env`, and `secret_files` are contents by file name. `cpu_milli` and `memory_mib` are requests, for
    runtimes with their own scheduler. `address_env` names the variables for the pod's own address. `image` is
    a reference by digest, or empty. `image_pull_policy` is `if_not_present`, `always` or `never`.
    `registry_auth` is the content of an auth.json, or empty. Berth reads `outputs` after the pod has ended
    and, with `keeps_files`, all files of a failed pod.
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
    project: str = ""
    uid: int = 0
    cpu_limit_milli: int = 0
    memory_limit_mib: int = 0
    optional_limits: tuple[str, ...] = ()
    workspace_limit_mib: int = 0
    image: str = ""
    image_pull_policy: str = "if_not_present"
    registry_auth: str = field(default="", repr=False)
    pool: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0
    address_env: tuple[str, ...] = ()
    volumes: tuple[VolumeMount, ...] = ()
    code_url: str = ""
    volumes_url: str = ""
    download_ca: str = ""
    download_secret: str = field(default="", repr=False)
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_files: Mapping[str, str] = field(default_factory=dict, repr=False)
    outputs: tuple[str, ...] = ()
    keeps_files: bool = False

    @property
    def has_secrets(self) -> bool:
        return bool(self.secret_env or self.secret_files or self.download_secret)


@dataclass(frozen=True)
class StopNotice:
    """Signal that a pod receives `lead_seconds` before SIGTERM."""

    signal: int
    lead_seconds: int


class PodState(str, Enum):
    __str__ = str.__str__

    UNKNOWN = "unknown"
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class PodCause(str, Enum):
    """Reason why a pod ended, if its command did not exit by itself."""

    __str__ = str.__str__

    NONE = ""
    STOPPED = "stopped"  # the pod was stopped on request
    EVICTED = "evicted"  # the cluster or one of its other users evicted or deleted the pod
    HOST_STOPPED = "host_stopped"  # the process to which the pod is tied has ended
    LOST = "lost"  # the pod's exit was not observed
    START_FAILED = "start_failed"
    IMAGE_PULL_FAILED = "image_pull_failed"  # the image could not be pulled, so the pod never started
    WORKSPACE_FULL = "workspace_full"  # the pod used all the disk space that its pool allows
    OUT_OF_MEMORY = "out_of_memory"  # the kernel killed the command at the pod's memory limit


@dataclass(frozen=True)
class PodReport:
    """State of a pod.

    At most one of `exit_code` and `signal` is set, and only after the command has exited. `progress` says
    what a starting pod is waiting for, such as "pulling layer 3 of 7, 26 MB", and `pulls_image` whether it is
    waiting for its image. `address` is the pod's own network address, if any. `memory_peak_mib` is set after
    the pod has ended, if it was measured. `warnings` counts the warnings, and `warning` is the latest.
    `eviction` is a clause that says why the cluster is stopping a live pod.
    """

    state: PodState
    exit_code: int | None = None
    signal: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cause: PodCause = PodCause.NONE
    message: str = ""
    progress: str = ""
    memory_peak_mib: int | None = None
    warnings: int = 0
    warning: str = ""
    address: str = ""
    pulls_image: bool = False
    eviction: str = ""


@dataclass(frozen=True)
class LogChunk:
    """Bytes of a pod's log from `offset` to `next_offset`.

    Offsets count the bytes that the pod wrote. `size` is the log's size. `complete` is true if the pod has
    ended and `next_offset` is the end of the log.
    """

    data: bytes
    offset: int
    next_offset: int
    size: int
    complete: bool


LOG_TIMES_SECONDS = 2  # a log line may be this many seconds older than its recorded time

# End offset of a log section, and the Unix time of its last byte in milliseconds (0 if unknown).
# Each section begins where the previous section ends.
LogTime = tuple[int, int]


@dataclass(frozen=True)
class PodUsage:
    """Resource usage of one pod.

    `cpu_seconds` is the CPU time of all its processes since its start. `memory_mib` is the current memory of
    its processes and, with control groups, of /dev/shm and recently used page cache.
    """

    cpu_seconds: float
    memory_mib: int


@dataclass(frozen=True)
class DeviceUsage:
    """Utilization of one GPU by all processes.

    `busy_milli` is the fraction of the last sampling period in which a kernel ran, in thousandths. A value is
    None if the device does not report it.
    """

    index: int
    identity: str
    busy_milli: int | None
    memory_mib: int | None


@dataclass(frozen=True)
class Measurements:
    """Usage by pod and by instance. A missing entry means "not measured", not "idle"."""

    pods: Mapping[str, PodUsage]
    devices: Mapping[str, tuple[DeviceUsage, ...]]


class RuntimeFailure(Exception):
    """Failure of the runtime itself, such as a full disk or an unreachable head node. Callers retry later."""


class StartRejected(RuntimeFailure):
    """Raised if the pool's cluster currently rejects a pod, for example because of its quota."""


class ChannelRejected(Exception):
    """Raised if a channel cannot be opened, for example because the pod is not running."""


@dataclass(frozen=True)
class ClusterQuota:
    """Resource quota that the pool's own cluster enforces in one namespace.

    `kind` is `gpu`, `cpu` or `memory_mib` for requests, `limit_cpu` or `limit_memory_mib` for limits, or
    `pods`. Amounts are in milli-GPUs, milli-CPUs, MiB or pods. `resource` is the cluster's name for the kind.
    `used` excludes this pool's live pods. `uid` is unique among all clusters.
    """

    name: str
    namespace: str
    resource: str
    kind: str
    hard: int
    used: int
    uid: str = ""


@dataclass(frozen=True)
class ClusterQuotas:
    """Sorted resource quotas of a cluster. `obstacle` says why they cannot be read, or is empty."""

    quotas: tuple[ClusterQuota, ...] = ()
    obstacle: str = ""


class Runtime(PodFileReader, Protocol):
    """Runtime that starts pods and reports how they ended, even if the calling process restarts."""

    starts_in_background: bool  # False if `begin_start` does nothing

    def start(self, spec: PodSpec) -> None:
        """Start the pod, possibly after this call has returned.

        Idempotent by `pod_id`. A pod that ended, or was stopped before its start, never starts again. If the
        command cannot be started or the image cannot be pulled, the pod's report says `start_failed` or
        `image_pull_failed`. Raises RuntimeFailure, or StartRejected if the cluster rejects the pod for now.
        """
        ...

    def begin_start(self, spec: PodSpec) -> None:
        """Start the pod in the background. Runtimes that start pods one at a time do nothing.

        Never raises: a later `start` of the same pod waits until this attempt is finished, and raises its
        error, if any.
        """
        ...

    def stop(self, pod_id: str, grace_seconds: int, notice: StopNotice | None = None) -> None:
        """Send SIGTERM to the pod's processes, and SIGKILL after the grace period.

        Return immediately. If `notice` is given, first send its signal to the processes that handle it, and
        send SIGTERM after the lead time. Runtimes without the capability `sends_notices` ignore notices.
        Idempotent: if called several times, the call that stops the pod soonest applies. An unknown pod is
        recorded as stopped.
        """
        ...

    def get_reports(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        """Return a report for each pod. A pod without a record is reported as `unknown`."""
        ...

    def list_pods(self) -> tuple[str, ...]:
        """Return the sorted IDs of all pods that have a record."""
        ...

    def forget(self, pod_id: str) -> None:
        """Delete a finished pod's record, but not its log. Do nothing if the pod has not finished."""
        ...

    def forget_in_background(self, pod_id: str) -> None:
        """Forget a finished pod in the background. Runtimes that forget pods one at a time do nothing.

        Never raises: a later `forget` of the same pod waits until this attempt is finished, and raises its
        error, if any.
        """
        ...

    def drop_log(self, pod_id: str) -> None:
        """Delete the log of a forgotten pod. Its other data has already been deleted."""
        ...

    def drop_workspace(self, workspace: str) -> None:
        """Delete the directory that a workload's pods shared."""
        ...

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        """Return at most `limit` bytes of the log from `offset`, or from its oldest remaining byte."""
        ...

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        """Return the last `lines` lines of the log.

        If these lines are very long, return only the last bytes.
        """
        ...

    def read_log_times(self, pod_id: str, start: int, end: int) -> Sequence[LogTime]:
        """Return when the parts of the log from `start` to `end` were written, in ascending order.

        The first bytes of a part may be up to `LOG_TIMES_SECONDS` older than its time. The parts end before
        `end` if the times of the last bytes are unknown.
        """
        ...

    def open_channel(self, pod_id: str) -> socket.socket:
        """Open a channel for one command in the pod, and return a blocking stream socket.

        The socket carries the frames of `pools.runtimes.shim.channels.frames`; the first is the request. The
        command and its processes end when the socket is closed or the pod ends. Raises ChannelRejected or
        RuntimeFailure.
        """
        ...

    def checkpointed_at(self, workspace: str) -> datetime | None:
        """Return when a pod last touched `.berth-checkpoint` in the workspace, or None if no pod has."""
        ...

    def measure(self, pod_ids: Collection[str], instance_ids: Collection[str]) -> Measurements:
        """Measure the pods' resource usage and the instances' GPU utilization.

        Pods, nodes and machines that cannot be measured are omitted.
        """
        ...

    def get_isolation(self, instance_ids: Collection[str]) -> Mapping[str, Isolation]:
        """Return each instance's isolation, omitting unresponsive nodes."""
        ...

    def get_cluster_quotas(self, pool: str) -> ClusterQuotas:
        """Return the quotas that the pool's cluster enforces in addition to Berth's.

        Raises RuntimeFailure.
        """
        ...

    def rendezvous(self) -> tuple[str, int]:
        """Return an address and a free port for one gang's rendezvous.

        An empty address stands for the address of the rank-0 node.
        """
        ...

    def wake_fds(self) -> tuple[int, ...]:
        """Return file descriptors, possibly none, that become readable when a pod's state changes."""
        ...

    def clear_wakeups(self) -> None:
        """Clear the descriptors from `wake_fds` by reading all pending wake-ups."""
        ...
