# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for pools."""

from datetime import datetime
from typing import Any

from pydantic import Field

from berth.client.models.base import Model
from berth.client.models.nodes import Amounts


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
    """Entirely free GPUs on ready nodes, excluding reserved GPUs. CPU and memory are not considered."""

    nodes: int = 0
    free_gpus: int = 0
    free_in_parts: float | None = None
    """Free GPUs on partially allocated devices."""
    levels: list[FragmentationLevel] = []


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
    """Cost of a pool, calculated with the price that applied in each hour. Costs are None if no price is
    known."""

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


class PreviewedNode(Model):
    name: str
    details: str = ""
    obstacle: str | None = None
    """Reason why the pool leaves the node out; None if it can be used."""
    gpu_model: str = ""
    total: Amounts = Field(default_factory=Amounts)
    free: Amounts = Field(default_factory=Amounts)
    """Resources that others do not use."""
    host_key: str | None = None
    """Public key that an SSH host presented; None if a key is pinned, or for other providers."""


class PreviewFinding(Model):
    severity: str = ""
    """`error`: the pool would not work."""
    message: str = ""
    remedy: str = ""


class PoolPreview(Model):
    """Nodes that a new pool could use, and problems to review before creating the pool."""

    source: str = ""
    """The system that was examined, for example a cluster with its version and address."""
    nodes: list[PreviewedNode] = []
    """The first 500 nodes."""
    nodes_total: int = 0
    nodes_usable: int = 0
    total: Amounts = Field(default_factory=Amounts)
    """Resources of the nodes that can be used."""
    free: Amounts = Field(default_factory=Amounts)
    """Resources of these nodes that are not used by others."""
    findings: list[PreviewFinding] = []


class DrainingNode(Model):
    """Node that would be drained. Nodes that would lose the least work come first.  A later request may
    list different nodes."""

    node: str = ""
    pods: int = 0
    not_preemptible: int = 0
    """Non-preemptible pods. The drain waits for them without a time limit."""
    gpu_seconds_lost: int = 0
    """GPU-seconds of work since the start or the last checkpoint."""
    work: list[str] | None = None
    """Workloads with pods on the node; None unless you are a platform admin."""
    blocked_by: str = ""
    """Disruption budget that blocks the drain; empty if there is none."""


class ScalePreview(Model):
    nodes_desired: int = 0
    nodes: int = 0
    """Previewed number of nodes."""
    draining_count: int = 0
    draining: list[DrainingNode] = []
    """First 500 nodes to drain, in order."""
    blocked: list[str] = []
    """Actions that a disruption budget blocks now."""


class ScaledPool(NodePool):
    draining_count: int = 0
    draining: list[DrainingNode] = []
    """First 500 nodes to drain, in order."""


class ScalingEvent(Model):
    id: int
    at: datetime
    kind: str = ""
    node: str | None = None
    before: int | None = None
    after: int | None = None
    reason: str = ""
    data: dict[str, Any] = {}
