# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for pools."""

from datetime import datetime
from typing import Any

from pydantic import Field

from berth.client.models.base import Model
from berth.client.models.pool_previews import Amounts


class AvailablePlugin(Model):
    name: str
    summary: str = ""
    source: str = ""
    """Package that provides the plugin; empty for built-in plugins."""
    parameters: dict[str, Any] = {}
    """JSON schema of the parameters."""


class CapacityPoint(Model):
    at: datetime
    desired: int = 0
    current: int = 0
    pending: int = 0
    draining: int = 0


class FragmentationLevel(Model):
    gpus: int = 0
    nodes: int = 0
    """Nodes with exactly this many free GPUs."""
    replicas: int = 0
    """Replicas of this size that could start together."""


class Fragmentation(Model):
    """Entirely free GPUs on ready nodes, excluding reserved GPUs.  Fewer replicas may fit if CPU or memory
    is short."""

    nodes: int = 0
    free_gpus: int = 0
    free_in_parts: float | None = None
    """Free GPUs on partially allocated devices."""
    levels: list[FragmentationLevel] = []


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


class DefaultLimits(Model):
    """Default limits for roles without limits of their own. None means unlimited."""

    memory_from_request: bool = False
    memory_mib: int | None = None
    cpu_from_request: bool = False
    cpu: float | None = None


class Plugin(Model):
    name: str
    parameters: dict[str, Any] = {}
    secrets_set: dict[str, datetime] = {}
    """Secrets that are set, each with the time at which it was set."""


class ImagePolicy(Model):
    mode: str = ""
    patterns: list[str] = []
    """Patterns of accepted images; empty: all."""


class IdleRule(Model):
    """Rule for workloads with idle GPUs. Durations are in seconds."""

    below: int = 0
    """Utilization in percent below which a GPU is idle."""
    after: int = 0
    """Idle time before the warning."""
    action: str = ""
    grace: int = 0
    """Time from the warning to the suspension."""
    warmup: int = 0
    """Time after the start of each pod that does not count."""
    text: str = ""
    """The rule in the notation of the command line."""


class Volume(Model):
    name: str
    source: str = ""
    access: str = ""
    nodes: dict[str, str] = {}
    """Labels of the nodes that have the volume; empty: all nodes."""
    projects: list[str] = []
    """Projects that may use the volume; empty: all projects."""
    endpoint: str | None = None
    """URL of the object store. None for AWS and for directories."""
    region: str | None = None
    secret: str | None = None
    """Secret of the pool with the credentials for S3."""
    max_gib: int | None = None
    """Maximum size of all objects. None for directories."""


class NodePool(Model):
    name: str
    version: int = 0
    provider: str = ""
    runtime: str = ""
    provider_settings: dict[str, Any] | None = None
    """None unless you are a platform admin."""
    nodes_min: int = 0
    ready_threshold: int | None = None
    nodes_max: int | None = None
    nodes_desired: int = 0
    nodes_ready: int = 0
    nodes_pending: int = 0
    nodes_draining: int = 0
    capacity: Amounts = Field(default_factory=Amounts)
    """Capacity of the nodes that currently accept pods."""
    free: Amounts = Field(default_factory=Amounts)
    state: str = ""
    """`failing`: see `last_error` (platform admins only)."""
    isolation: str | None = None
    """Weakest isolation of the pool's nodes; None until a node has reported it."""
    paused: bool = False
    operational: bool = False
    expires_at: datetime | None = None
    last_error: str | None = None
    """Last provider error; None unless you are a platform admin."""
    autoscale_cooldown: int = 0
    autoscale_idle_timeout: int = 0
    reconcile_tick: int = 0
    drain_timeout: int = 0
    boot_timeout: int = 0
    boot_failure_limit: int = 0
    boot_failures: int = 0
    """Consecutive launch requests whose nodes never became ready."""
    boot_retry_at: datetime | None = None
    """Earliest time of the next launch request; None if there is no delay."""
    provisioning_stopped: bool = False
    """If true, no nodes are requested until POST .../retry."""
    node_consolidation: str = ""
    """Nodes that are released in addition to those that the autoscaler removes: none, empty nodes, or also
    nodes whose pods fit on other nodes."""
    node_consolidation_after: int = 0
    disruption_budgets: list[dict[str, Any]] = []
    last_scaled_at: datetime | None = None
    gpus_per_node: int = 0
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    cpu: float = 0
    memory_mib: int = 0
    max_pods: int = 0
    default_limits: DefaultLimits = Field(default_factory=DefaultLimits)
    workspace_limit_mib: int | None = None
    """Maximum disk space of a workspace and its pods; None for unlimited."""
    labels: dict[str, Any] = {}
    taints: list[dict[str, Any]] = []
    price_per_gpu_hour: float | None = None
    plugins: list[Plugin] = []
    environment: dict[str, Any] = {}
    """Environment as declared; GET .../environment returns the resulting image."""
    environment_digest: str | None = None
    """Digest of the environment of new nodes; None if there is none."""
    image_policy: ImagePolicy = Field(default_factory=ImagePolicy)
    idle_rule: IdleRule | None = None
    volumes: list[Volume] | None = None
    """None unless you are a platform admin; `GET projects/{name}` lists a project's volumes."""
    current_price: float | None = None
    """Price per GPU-hour in effect: the pool's own or, if unset, the list price."""
    node_placement: str = ""
    device_placement: str = ""
    reclaim_min_runtime: int = 0
    preempt_min_runtime: int = 0
    preemption_delay: int = 0
    stale_gang_grace: int = 0
    consolidation_enabled: bool = False
    consolidation_max_moves: int | None = None
    consolidation_max_trials: int | None = None
    fairshare_mode: str = ""
    half_life: int | None = None
    window: int | None = None
    tumbling_window: bool = False
    k: float = 0
    count_all: bool = False
    over_quota_weights: bool = False
    topology: list[str] = []
    reservation_after: int | None = None
    cpu_load_limit: float = 0
    created_at: datetime
    updated_at: datetime


class PeriodCost(Model):
    node_hours: float = 0
    gpu_hours: float = 0
    cost: float | None = None


class PoolCost(Model):
    """Cost of a pool at the price that applied in each hour. Costs are None if no price is known."""

    price_per_gpu_hour: float | None = None
    per_hour: float | None = None
    """Hourly cost of the current nodes."""
    last_24_hours: PeriodCost = Field(default_factory=PeriodCost)
    last_30_days: PeriodCost = Field(default_factory=PeriodCost)


class Finding(Model):
    severity: str = ""
    name: str
    finding: str = ""
    """A sentence with numbers."""
    remedy: str = ""
    """Remedy; empty if no action is needed."""


class PoolDiagnosis(Model):
    pool: str = ""
    findings: list[Finding] = []
    """Most important first; empty if there is none."""


class PoolEnvironment(Model):
    """Environment that a pool's plugins install."""

    digest: str = ""
    image: dict[str, Any] = {}
    """Image after all plugins; secrets appear only as variable names."""
    phases: list[str] = []
    script: str = ""
    """Script that each node runs at boot."""
    created_at: datetime
