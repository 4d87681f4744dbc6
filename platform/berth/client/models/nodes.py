# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for nodes."""

from datetime import datetime
from typing import Any

from pydantic import Field

from berth.client.models.base import Model


class JoinToken(Model):
    id: int
    prefix: str = ""
    """First characters of the token; the token itself is not stored."""
    comment: str = ""
    state: str = ""
    """`used`: all machines have joined."""
    issued_by: str = ""
    issued_at: datetime
    expires_at: datetime
    max_machines: int = 0
    """Number of machines that may join."""
    machines_joined: int = 0
    """Number of machines that joined; a machine that joined again counts once."""
    revoked_at: datetime | None = None


class IssuedJoinToken(JoinToken):
    token: str | None = None
    """Shown only once; None in a repeated response."""


class Gpu(Model):
    model: str = ""
    memory_mib: int = 0


class Inventory(Model):
    agent_version: str = ""
    agent_outdated: bool = False
    """Whether the server has a different version of the agent."""
    upgrade_error: str = ""
    """Reason the last upgrade of the agent failed."""
    python: str = ""
    os: str = ""
    kernel: str = ""
    architecture: str = ""
    cpu_model: str = ""
    disk_mib: int = 0
    """Size of the file system with the agent's files."""
    disk_free_mib: int = 0
    gpu_driver: str = ""
    gpus: list[Gpu] = []
    """GPUs in the order of the devices."""


class Machine(Model):
    name: str
    state: str = ""
    """`draining`: to be removed once the node is drained; `silent`: no longer reporting."""
    node: str | None = None
    """Node that the machine currently serves as."""
    address: str = ""
    cpu: float = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_model: str = ""
    inventory: Inventory | None = None
    """None until the machine's agent has reported it."""
    token_prefix: str | None = None
    """First characters of the token with which the machine last joined; None once deleted."""
    joined_at: datetime
    last_seen_at: datetime
    """Time of the last report."""
    departed_at: datetime | None = None


class Amounts(Model):
    """GPUs, CPU cores and MiB of memory. None means unlimited."""

    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None


class Phase(Model):
    phase: str = ""
    state: str = ""
    seconds: int = 0
    message: str = ""
    """Last output of a failed phase or of `start`; only for platform admins."""
    exit_code: int | None = None
    """Exit code of the start script (phase `start`)."""


class Isolation(Model):
    level: str = ""
    """`users` is the strongest; see the guide on isolation."""
    policy: str = ""
    """`BERTH_ISOLATION` on the node."""
    obstacle: str = ""
    """Reason the node does not offer the strongest level; only for platform admins."""
    limits: list[str] = []
    """Pod limits that the node enforces."""
    limits_obstacle: str = ""
    """Reason the node does not enforce the others; only for platform admins."""
    images: str = ""
    """Version of podman, if the node runs container images."""
    images_obstacle: str = ""
    """Reason the node does not run container images; only for platform admins."""
    seccomp: bool = False
    """Whether pods' system calls are filtered."""
    seccomp_obstacle: str = ""
    """Reason pods' system calls are not filtered; only for platform admins."""


class ForeignUsage(Model):
    """Resource requests of pods that Berth does not own. The node's capacity excludes them."""

    gpus: int = 0
    cpu: float = 0
    memory_mib: int = 0
    pods: int = 0


class Node(Model):
    name: str
    pool: str = ""
    ordinal: int = 0
    state: str = ""
    since: datetime
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    capacity: Amounts = Field(default_factory=Amounts)
    free: Amounts = Field(default_factory=Amounts)
    """Zero on a node that accepts no pods."""
    max_pods: int = 0
    labels: dict[str, Any] = {}
    taints: list[dict[str, Any]] = []
    environment_digest: str | None = None
    """Digest of the installed environment; None if there is none."""
    phases: list[Phase] = []
    """Installation phases, in order."""
    ready_at: datetime | None = None
    not_ready_reason: str = ""
    """Reason a booting node is not ready, such as a failed probe; only for platform admins."""
    drain_started_at: datetime | None = None
    drain_reason: str = ""
    isolation: Isolation | None = None
    """Isolation of the node's pods; None until its agent has reported it."""
    inventory: Inventory | None = None
    """Inventory of the machine; None unless you are a platform admin and an agent reported it."""
    obstacle: str = ""
    """Reason why the machine accepts no new pods, for example because it is cordoned in Kubernetes; empty
    if there is none."""
    foreign: ForeignUsage | None = None
    """Resources that foreign pods use on the machine; None if there are none."""
    instance_id: str | None = None
    """None unless you are a platform admin."""
    address: str | None = None
    """None unless you are a platform admin."""
    work: list[str] | None = None
    """Workloads with pods on the node, with pod counts; None unless you are a platform admin."""
    created_at: datetime


class SshHost(Model):
    name: str
    address: str = ""
    port: int = 0
    user: str = ""
    bastion: str | None = None
    """Address of the server through which the host is reached."""
    state: str = ""
    """`unverified`: its key has not been accepted; `pending`: not connected yet; `silent`: its agent no
    longer reports; `failing`: the last attempt failed, see `message`; `removing`: its node is drained,
    then the agent is uninstalled."""
    problem: str | None = None
    """Kind of the problem: unreachable, timeout, host_key, login, key, command or unsuitable."""
    message: str = ""
    host_key: str | None = None
    """Pinned public key."""
    fingerprint: str | None = None
    presented_key: str | None = None
    """Public key that the host presented and that is not pinned."""
    presented_fingerprint: str | None = None
    failures: int = 0
    """Consecutive failed connections."""
    connected_at: datetime | None = None
    """Time of the last SSH connection."""
    retry_at: datetime | None = None
    last_seen_at: datetime | None = None
    """Time of the last report of the host's agent."""
    facts: dict[str, Any] = {}
    """Properties of the host as detected by the last installation."""
