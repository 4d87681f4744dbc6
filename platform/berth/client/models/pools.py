"""Node pools, nodes and machines."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Amounts, Model, Numbers


class NodePool(Model):
    name: str
    provider: str = ""
    runtime: str = ""
    version: int = 0
    nodes_min: int = 0
    ready_threshold: int | None = None
    nodes_max: int | None = None
    nodes_desired: int = 0
    nodes_ready: int = 0
    nodes_pending: int = 0
    nodes_draining: int = 0
    capacity: Amounts = Amounts()
    free: Amounts = Amounts()
    state: str = "active"
    paused: bool = False
    operational: bool = False
    expires_at: datetime | None = None
    last_error: str | None = None
    boot_failures: int = 0
    boot_failure_limit: int = 0
    boot_retry_at: datetime | None = None
    provisioning_stopped: bool = False
    gpus_per_node: int = 0
    gpu_model: str = ""
    cpu: float = 0
    memory_mib: int = 0
    current_price: float | None = None
    labels: dict[str, Any] = {}
    plugins: list[dict[str, Any]] = []
    environment: dict[str, Any] = {}
    environment_digest: str | None = None
    node_consolidation: str = "never"
    disruption_budgets: list[dict[str, Any]] = []


class PoolEnvironment(Model):
    """Environment that a pool's plugins install; `script` runs when a node boots."""

    digest: str
    image: dict[str, Any] = {}
    phases: list[str] = []
    script: str = ""


class AvailablePlugin(Model):
    name: str
    summary: str = ""
    source: str = ""
    parameters: dict[str, Any] = {}


class DrainingNode(Model):
    """A node to drain; `blocked_by` names the disruption budget that delays the drain."""

    node: str
    pods: int = 0
    not_preemptible: int = 0
    gpu_seconds_lost: int = 0
    work: list[str] | None = None
    blocked_by: str = ""


class ScaledPool(NodePool):
    draining_count: int = 0
    draining: list[DrainingNode] = []


class Scaling(Model):
    nodes_desired: int = 0
    nodes: int = 0
    draining_count: int = 0
    draining: list[DrainingNode] = []
    blocked: list[str] = []


class ScalingEvent(Model):
    id: int
    at: datetime
    kind: str
    node: str | None = None
    before: int | None = None
    after: int | None = None
    reason: str = ""
    data: Numbers = {}


class CapacityPoint(Model):
    at: datetime
    desired: int = 0
    current: int = 0
    pending: int = 0
    draining: int = 0


class PeriodCost(Model):
    node_hours: float = 0
    gpu_hours: float = 0
    cost: float | None = None


class PoolCost(Model):
    price_per_gpu_hour: float | None = None
    per_hour: float | None = None
    last_24_hours: PeriodCost = PeriodCost()
    last_30_days: PeriodCost = PeriodCost()


class FreeLevel(Model):
    gpus: int
    nodes: int = 0
    replicas: int = 0


class Fragmentation(Model):
    nodes: int = 0
    free_gpus: int = 0
    free_in_parts: float = 0
    levels: list[FreeLevel] = []


class Node(Model):
    name: str
    pool: str = ""
    state: str = ""
    gpus: int = 0
    gpu_model: str = ""
    capacity: Amounts = Amounts()
    free: Amounts = Amounts()
    since: datetime | None = None
    drain_reason: str = ""
    environment_digest: str | None = None
    phases: list[dict[str, Any]] = []
    address: str | None = None
    work: list[str] | None = None
    instance_id: str | None = None


class JoinToken(Model):
    id: int
    prefix: str = ""
    comment: str = ""
    state: str = ""
    issued_by: str = ""
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    used_at: datetime | None = None
    used_by: str | None = None
    revoked_at: datetime | None = None
    token: str | None = None


class Machine(Model):
    name: str
    state: str = ""
    node: str | None = None
    address: str = ""
    cpu: float = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_model: str = ""
    joined_at: datetime | None = None
    last_seen_at: datetime | None = None
    departed_at: datetime | None = None
