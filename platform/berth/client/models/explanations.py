# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for explanations."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model
from berth.client.models.scheduling import Eviction
from berth.client.models.workloads import Blocker


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
