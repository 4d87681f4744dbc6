# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for tenants."""

from datetime import datetime
from typing import Any

from pydantic import Field

from berth.client.models.base import Model
from berth.client.models.nodes import Amounts
from berth.client.models.pools import IdleRule


class Department(Model):
    name: str
    title: str = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None
    created_at: datetime


class Project(Model):
    name: str
    department: str = ""
    title: str = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None
    idle_rule: IdleRule | None = None
    """Rule for idle GPUs that replaces those of the pools; None for none."""
    created_at: datetime


class ProjectVolume(Model):
    """Volume that the project's workloads may use in one pool."""

    name: str
    pool: str = ""
    access: str = ""
    nodes: int = 0
    """Nodes of the pool that have the volume."""
    pool_nodes: int = 0
    """All nodes of the pool."""


class ProjectDetail(Project):
    volumes: list[ProjectVolume] = []


class Owner(Model):
    kind: str = ""
    name: str


class DecayedUsage(Model):
    """Decayed usage of each resource."""

    gpu: float = 0
    cpu: float = 0
    memory_mib: float = 0


class QueueStatus(Model):
    """Fair share, allocation, reservations and demand of a queue in the last cycle."""

    share: Amounts = Field(default_factory=Amounts)
    allocated: Amounts = Field(default_factory=Amounts)
    """Resources that pods hold."""
    reserved: Amounts = Field(default_factory=Amounts)
    """Resources set aside for replicas that cannot start yet."""
    requested: Amounts = Field(default_factory=Amounts)
    usage: DecayedUsage = Field(default_factory=DecayedUsage)


class Weights(Model):
    gpu: float = 0
    cpu: float = 0
    memory_mib: float = 0


class Quota(Model):
    owner: Owner
    pool: str = ""
    """Node pool or quota group."""
    pools: dict[str, QueueStatus | None] | None = None
    """Status by pool if the quota counts in a quota group; otherwise None."""
    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None
    limit: Amounts = Field(default_factory=Amounts)
    weight: float | Weights = 0
    over_quota: bool = False
    rank: int | None = None
    version: int = 0
    status: QueueStatus | None = None
    """Status in the pool; None before the first cycle and for a quota group."""


class ChangedQuota(Model):
    kind: str = ""
    name: str
    pool: str = ""
    """Node pool or quota group."""
    group: bool = False
    """Whether `pool` is a quota group."""
    before: dict[str, Any] | None = None
    """None if there was no quota."""
    after: dict[str, Any] | None = None
    """None if the quota was removed."""


class QuotaChange(Model):
    """Quota changes that were applied together."""

    id: int
    at: datetime
    actor: str = ""
    comment: str = ""
    reverts: int | None = None
    reverted_by: int | None = None
    superseded_by: int | None = None
    """Latest change that changed any of the listed quotas again. It prevents a revert."""
    expires_at: datetime | None = None
    """Time of the automatic revert."""
    expired: str | None = None
    """After an automatic revert, the quotas that it skipped; otherwise None."""
    quotas: list[ChangedQuota] = []
    """Changed quotas that you may see."""
    hidden: int = 0
    """Number of changed quotas that you may not see."""


class QuotaGroup(Model):
    """Group of pools that have the same GPU model and share quotas."""

    name: str
    pools: list[str] = []
    version: int = 0


class ShareChange(Model):
    kind: str = ""
    name: str
    pool: str = ""
    before: Amounts = Field(default_factory=Amounts)
    after: Amounts = Field(default_factory=Amounts)
    allocated: Amounts = Field(default_factory=Amounts)


class StartChange(Model):
    project: str = ""
    workload: str = ""
    pool: str = ""
    gpus: float = 0
    immediately: bool = False
    """False if the workload starts only once evicted workloads have stopped."""


class ReasonChange(Model):
    project: str = ""
    workload: str = ""
    before: str = ""
    after: str = ""
    message: str = ""


class HiddenChanges(Model):
    shares: int = 0
    starts: int = 0
    no_longer_starting: int = 0
    evictions: int = 0
    evicted_gpus: float = 0
    reasons: int = 0


class QuotaInPool(Model):
    kind: str = ""
    name: str
    pool: str = ""
    before: Amounts = Field(default_factory=Amounts)
    """Quota that counts in the pool: of a group, excluding allocations in its other pools."""
    after: Amounts = Field(default_factory=Amounts)
    allocated: Amounts = Field(default_factory=Amounts)
    """Allocated in the pool now."""


class OverQuota(Model):
    """Running workload with pods that are within quota now, but would be over quota after the change."""

    kind: str = ""
    """Kind of the queue whose quota they would exceed."""
    name: str
    pool: str = ""
    project: str = ""
    workload: str = ""
    pods: int = 0
    gpus: float = 0


class QuotaGroupImpact(Model):
    """Predicted changes in the next cycle if the quota group contained `pools_after` instead of
    `pools_before`."""

    changes_nothing: bool = False
    shares: list[ShareChange] = []
    starts: list[StartChange] = []
    no_longer_starting: list[StartChange] = []
    evictions: list[dict[str, Any]] = []
    reasons: list[ReasonChange] = []
    hidden: HiddenChanges = Field(default_factory=HiddenChanges)
    pools_before: list[str] = []
    pools_after: list[str] = []
    quotas: list[QuotaInPool] = []
    """Queues whose quota in a pool would change."""
    over_quota: list[OverQuota] = []
    tag: str = ""
    """Value for If-Match when you change the pools; also sent as ETag."""


class QuotaEdit(Model):
    kind: str = ""
    name: str
    pool: str = ""
    """Node pool or quota group."""
    group: bool = False
    """Whether `pool` is a quota group."""
    before: dict[str, Any] | None = None
    """None if there is no quota."""
    after: dict[str, Any] | None = None
    """None if the quota would be removed."""


class QuotaWarning(Model):
    code: str = ""
    pool: str = ""
    queue: str = ""
    message: str = ""


class QuotaImpact(Model):
    """Predicted changes in the next cycle. Workloads that are hidden from you are counted but not listed."""

    changes_nothing: bool = False
    shares: list[ShareChange] = []
    starts: list[StartChange] = []
    no_longer_starting: list[StartChange] = []
    evictions: list[dict[str, Any]] = []
    reasons: list[ReasonChange] = []
    hidden: HiddenChanges = Field(default_factory=HiddenChanges)
    quotas: list[QuotaEdit] = []
    warnings: list[QuotaWarning] = []
    tag: str = ""
    """Value for If-Match when you apply the draft; also sent as ETag."""


class Secret(Model):
    name: str
    kind: str = ""
    """`value`: for pods; `registry`: for pulling images; `ssh_key`: for SSH hosts; `s3_key`: for volumes
    in S3."""
    registry: str | None = None
    username: str | None = None
    """Username of a registry, or ID of an S3 access key."""
    version: int = 0
    """Version of the content, incremented with each change."""
    created_at: datetime
    created_by: str = ""
    updated_at: datetime
    updated_by: str = ""


class SecretUse(Model):
    """Workload run that received a version of the secret."""

    workload: str = ""
    name: str
    project: str = ""
    run: int = 0
    version: int = 0
    at: datetime
    outdated: bool = False
    """The run has not ended, and the secret has changed since."""


class ShareRound(Model):
    """One round of the fair-share division in which the queue took part."""

    phase: str = ""
    rank: int = 0
    remaining: float = 0
    weighted_share: float = 0
    weighted_share_without_usage: float = 0
    offered: float = 0
    granted: float = 0


class ShareTraceEntry(Model):
    """Calculation of a queue's share of one resource, step by step, with explanations."""

    kind: str = ""
    name: str
    queue: str = ""
    """Pool or department whose resources are divided."""
    resource: str = ""
    total: float = 0
    share: float = 0
    explanation: list[str] = []
    rounds: list[ShareRound] = []


class ShareTrace(Model):
    """Computation of the current fair share, in GPUs, CPU cores and MiB."""

    pool: str = ""
    trace: list[ShareTraceEntry] = []
    """The department comes first if you may see all of its projects."""


class StoredQuota(Quota):
    warnings: list[QuotaWarning] = []
    """Unusual values; the quota is stored anyway."""


class StoredSecret(Secret):
    warnings: list[str] = []
    """Advice, for example that logs do not mask a short value."""
