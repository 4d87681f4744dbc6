# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for scheduling."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model
from berth.client.models.mixins import HealthMixin
from berth.client.models.workloads import AwaitedEnd, Blocker


class Cycle(Model):
    id: int
    at: datetime
    epoch: int = 0
    trigger: str = ""
    observe_ms: float = 0
    decide_ms: float = 0
    commit_ms: float = 0
    nodes: int = 0
    workloads: int = 0
    pending: int = 0
    bundles: int = 0
    applied: int = 0
    stale: int = 0
    evictions: int = 0
    trials: int = 0
    engine: str = ""
    """Version of the decision engine: release and file digest."""
    notes: list[Any] = []


class Eviction(Model):
    id: int
    at: datetime
    kind: str = ""
    pool: str = ""
    workload: str | None = None
    """None if you may not see the project. The name is then empty."""
    workload_name: str = ""
    project: str = ""
    department: str = ""
    preemptor_id: str | None = None
    preemptor_name: str = ""
    preemptor_project: str = ""
    victim: str = ""
    """Evicted workload as PROJECT/NAME, or only its size and project if you may not see it."""
    preemptor: str = ""
    """Workload for which the victim was evicted, in the same form. Empty for the kinds `stale_gang`,
    `drain` and `cluster`."""
    rule: str = ""
    numbers: dict[str, Any] = {}
    pods: list[Any] = []
    entire_workload: bool = False
    gpus: float = 0
    lost_gpu_seconds: int = 0
    cycle: int | None = None
    summary: str = ""
    explanation: list[str] = []
    """Sentences that explain the rule, the queues' numbers and the lost work."""


class EvictionPair(Model):
    victim_project: str = ""
    preemptor_project: str = ""
    """Empty if there is no preemptor, for example in a drain."""
    evictions: int = 0
    gpus: float = 0
    lost_gpu_seconds: int = 0


class EvictionMatrix(Model):
    """Eviction totals for each pair of a victim's and a preemptor's project."""

    pairs: list[EvictionPair] = []
    """Pairs in descending order of lost work."""
    omitted: int = 0
    """Number of pairs left out because of the limit."""


class PendingPeriod(Model):
    """Period during which one pending reason applied."""

    reason: str = ""
    since: datetime
    until: datetime | None = None
    """None for the current reason."""


class Explanation(Model):
    phase: str = ""
    reason: str = ""
    message: str = ""
    queue_position: int | None = None
    ordering: list[str] = []
    """Sort keys that decided the queue position, most significant first."""
    expected_start: datetime | None = None
    expected_start_reason: str = ""
    """Assumptions of the estimate, or the reason there is none."""
    expected_start_after: list[AwaitedEnd] = []
    """Workloads whose ends the estimate depends on: at most five, those that end last."""
    burst: str = ""
    """When a workload with `burst_after` may use its last pool, and the price there; empty if it may use
    all of its pools."""
    idle: str = ""
    """Warning about idle GPUs, or the rules that apply; empty if there is neither."""
    blockers: list[Blocker] = []
    queue: dict[str, Any] = {}
    """Queue statuses of the project and its department. `how` explains each resource's share."""
    evictions: list[Eviction] = []
    explained_at: datetime | None = None
    cycle: int | None = None
    pending_history: list[PendingPeriod] = []
    """Reasons the workload was pending, oldest first, including those of earlier runs."""


class Leader(Model):
    holder: str = ""
    epoch: int = 0
    renewed_at: datetime
    expires_at: datetime
    alive: bool = False


class LastCycle(Model):
    id: int
    at: datetime
    trigger: str = ""
    observe_ms: float = 0
    decide_ms: float = 0
    commit_ms: float = 0
    applied: int = 0
    stale: int = 0
    evictions: int = 0
    notes: list[str] = []
    """Inconsistent rows that the cycle skipped."""


class Invariant(Model):
    name: str
    ok: bool = False
    detail: str = ""


class Wake(Model):
    last_renewal_seconds: float = 0


class Health(HealthMixin, Model):
    """State of the scheduler. The invariants are checked during the request."""

    leader: Leader | None = None
    last_cycle: LastCycle | None = None
    invariants: list[Invariant] = []
    pending: int = 0
    wake: Wake | None = None


class PendingWorkload(Model):
    queue_position: int | None = None
    """Position in the pool's queue. None until a cycle has considered the workload, and for reserved
    workloads."""
    phase: str = ""
    """pending, or reserved if nodes are reserved for the workload."""
    workload: str = ""
    name: str
    project: str = ""
    department: str = ""
    priority: int = 0
    gpus: float = 0
    """GPUs requested at the minimum number of replicas."""
    submitted_at: datetime
    reason: str = ""
    message: str = ""
    ordering: list[str] = []
    """Sort keys that decided the queue position, most significant first."""
    expected_start: datetime | None = None


class Queue(Model):
    workloads: int = 0
    """Pending workloads of the pool, including those not visible to you. An array counts as one workload;
    its queued tasks are separate items."""
    gpus: float = 0
    items: list[PendingWorkload] = []
    next: str | None = None


class Replay(Model):
    cycle: int = 0
    identical: bool = False
    recorded_engine_version: str = ""
    engine_version: str = ""
    bundles: int = 0
    pending: int = 0
    differing: int = 0
    differences: list[str] = []
    summary: str = ""


class SingleChange(Model):
    """Single change that would let a workload start. Values are GPUs, CPU cores, MiB, seconds or counts."""

    kind: str = ""
    subject: str = ""
    """The role, queue, node, pool or workload that changes; empty for the workload itself."""
    resource: str = ""
    """The changed amount, such as gpu, memory_mib, limit.cpu, devices or replicas, or the key of a label
    or taint."""
    pool: str = ""
    """Pool whose queue, nodes or settings change."""
    before: int | float | str | None = None
    after: int | float | str | None = None


class SmallestChange(Model):
    """The smallest single change that would start a pending workload now."""

    outcome: str = ""
    """`schedulable`: with the change, a workload that can never start as specified waits for free
    resources. `no_change`: no single change starts the workload. `undecided`: none was found among the
    changes tried. `not_needed`: the workload is not pending, or the next cycle places it."""
    sentence: str = ""
    change: SingleChange | None = None
    evicted_workloads: int = 0
    """Other workloads that the start would evict."""
    scaled_down_workloads: int = 0
    moved_workloads: int = 0
    change_without_evictions: SingleChange | None = None
    """The smallest reduction of the request that starts the workload without evicting, scaling down or
    moving others; None if there is none, or if `change` affects no other workload."""
