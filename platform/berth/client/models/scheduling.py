"""Evictions, cycles, queues and scheduler health."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model, Numbers


class Eviction(Model):
    id: int
    at: datetime
    kind: str
    pool: str = ""
    workload: str | None = None
    workload_name: str = ""
    project: str = ""
    department: str = ""
    preemptor_id: str | None = None
    preemptor_name: str = ""
    preemptor_project: str = ""
    victim: str = ""
    preemptor: str = ""
    rule: str = ""
    summary: str = ""
    explanation: list[str] = []
    numbers: Numbers = {}
    entire_workload: bool = True
    gpus: float = 0
    lost_gpu_seconds: int = 0
    cycle: int | None = None


class EvictionPair(Model):
    victim_project: str
    preemptor_project: str = ""
    evictions: int = 0
    gpus: float = 0
    lost_gpu_seconds: int = 0


class EvictionMatrix(Model):
    """Eviction totals by pair of projects, those with the most lost work first."""

    pairs: list[EvictionPair] = []
    omitted: int = 0


class Cycle(Model):
    id: int
    at: datetime
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
    engine: str = ""


class Replay(Model):
    cycle: int
    identical: bool
    recorded_engine_version: str = ""
    engine_version: str = ""
    differing: int = 0
    differences: list[str] = []
    summary: str = ""


class Health(Model):
    """State of the scheduler; `invariants` are checked at the time of the request."""

    leader: dict[str, Any] | None = None
    last_cycle: dict[str, Any] | None = None
    invariants: list[dict[str, Any]] = []
    pending: int = 0
    wake: dict[str, Any] | None = None

    @property
    def is_healthy(self) -> bool:
        leads = self.leader is not None and bool(self.leader.get("alive"))
        return leads and all(invariant.get("ok") for invariant in self.invariants)


class QueuedWorkload(Model):
    """Pending workload; `queue_position` is None until a scheduling cycle has considered it."""

    workload: str
    name: str
    project: str
    queue_position: int | None = None
    department: str = ""
    priority: int = 0
    gpus: float = 0
    submitted_at: datetime | None = None
    reason: str = ""
    message: str = ""
    ordering: list[str] = []
    expected_start: datetime | None = None


class Queue(Model):
    """Queue of a pool. `workloads` and `gpus` include workloads not visible to you; `items` do not."""

    workloads: int
    gpus: float
    items: list[QueuedWorkload]
