"""Schema of scenario files."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator

from berth.core.spec.roles import Document, Labels, Seconds
from berth.core.spec.values.quantities import Cores, Mebibytes, Moment, raise_error
from berth.core.spec.values.texts import LabelKey, LabelValue, Name, Text
from berth.core.spec.workload import WorkloadSpec
from scheduler.engine.model import RESERVATION_AFTER

FORMAT = "berth.scenario/1"
MAX_NUMBER = 10**9
AMOUNT_ALLOWED = "0 or more, in steps of 0.001"


def validate_amount(value: object) -> int | float:
    """Validate that a resource amount is a multiple of 0.001."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
        raise_error("amount", "is not a valid amount", AMOUNT_ALLOWED)
    if abs(value * 1000 - round(value * 1000)) > 1e-6:
        raise_error("amount", "has more than three decimals", AMOUNT_ALLOWED)
    return value


Amount = Annotated[int | float, PlainValidator(validate_amount)]
Share = Annotated[float, Field(ge=0, le=1e18)]
Number = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Count = Annotated[int, Field(ge=0, le=MAX_NUMBER)]
PerResource = Annotated[tuple[float, float, float], Field(strict=False)]


PlacementStrategy = Literal["binpack", "spread", "fragmentation", "auto"]


# Feature that a node may lack. `volume:NAME` is a volume of its pool.
Feature = Annotated[str, Field(pattern=r"^(images|isolation|shared_gpus|volume:[a-z0-9-]{1,63})$")]


class Placement(Document):
    nodes: PlacementStrategy = "binpack"
    devices: PlacementStrategy = "binpack"


def expand_strategy(value: Any) -> Any:
    """Expand a single strategy to the same strategy for nodes and devices."""
    return {"nodes": value, "devices": value} if isinstance(value, str) else value


class ConsolidationSettings(Document):
    enabled: bool = True
    max_moves: Count | None = None
    max_trials: Count | None = None


class FairShareSettings(Document):
    mode: Literal["point_in_time", "time_based"] = "point_in_time"
    half_life: Annotated[Seconds, Field(ge=1)] | None = None
    window: Annotated[Seconds, Field(ge=1)] | None = None
    tumbling: bool = False
    k: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    count: Literal["over_quota", "all"] = "over_quota"


class TaintDocument(Document):
    key: LabelKey
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


Taints = Annotated[tuple[TaintDocument, ...], Field(max_length=64, strict=False)]


class Shape(Document):
    """Capacity of one machine."""

    gpus: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu_model: Text = ""
    gpu_memory_mib: Mebibytes = 0
    cpu: Cores = 0
    memory_mib: Mebibytes = 0
    max_pods: Count = 110
    labels: Labels = Field(default_factory=dict)
    taints: Taints = ()
    lacks: Mapping[Feature, Text] = Field(default_factory=dict)


class NodeBounds(Document):
    min: Count = 0
    max: Count | None = None
    shape: Shape | None = None  # shape of additional nodes; defaults to that of the pool's first node


class PoolDocument(Document):
    name: Name
    placement: Annotated[Placement, BeforeValidator(expand_strategy)] = Placement()
    reclaim_min_runtime: Seconds = 0
    preempt_min_runtime: Seconds = 0
    preemption_delay: Seconds = 0
    stale_gang_grace: Number = 60
    consolidation: ConsolidationSettings = ConsolidationSettings()
    fairshare: FairShareSettings = FairShareSettings()
    over_quota_weights: bool = True
    topology: Annotated[tuple[LabelKey, ...], Field(max_length=16, strict=False)] = ()
    nodes: NodeBounds = NodeBounds()
    reservation_after: Seconds | None = RESERVATION_AFTER
    cpu_load_limit: Annotated[float, Field(gt=0, le=1)] = 1.0


class NodeDocument(Shape):
    name: Name
    pool: Name | None = None
    state: Literal["ready", "cordoned", "draining", "booting"] = "ready"
    ordinal: Count = 0
    ready_at: Moment | None = None
    only_project: Name | None = None


class Limits(Document):
    gpu: Amount | None = None
    cpu: Amount | None = None
    memory_mib: Count | None = None


class Weights(Document):
    gpu: Share = 1.0
    cpu: Share = 1.0
    memory_mib: Share = 1.0


def expand_weight(value: Any) -> Any:
    """Expand a single number to equal weights for all resources."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return {"gpu": value, "cpu": value, "memory_mib": value} if plain else value


class QuotaDocument(Document):
    gpu: Amount | None = 0
    cpu: Amount | None = 0
    memory_mib: Count | None = 0
    weight: Annotated[Weights, BeforeValidator(expand_weight)] = Weights()
    over_quota: bool = True
    limit: Limits = Limits()
    rank: Number | None = None  # rank in this pool; defaults to the queue's rank


class UsageDocument(Document):
    """Decayed usage as fractions of the parent's usage, or as two amounts (`used`, `parent`)."""

    gpu: Share = 0.0
    cpu: Share = 0.0
    memory_mib: Share = 0.0
    used: PerResource | None = None
    parent: PerResource | None = None


class QueueDocument(Document):
    name: Name
    rank: Number = 0
    created: Moment | None = None
    quotas: dict[Name, QuotaDocument] = Field(default_factory=dict)
    usage: dict[Name, UsageDocument] = Field(default_factory=dict)
    reclaim_min_runtime: Seconds | None = None
    preempt_min_runtime: Seconds | None = None


class DepartmentDocument(QueueDocument):
    pass


class ProjectDocument(QueueDocument):
    department: Name
    # Expected runtime of workloads without `max_runtime`.
    expected_runtime: Annotated[int, Field(ge=1)] | None = None


class PodDocument(Document):
    role: Name | None = None
    index: Count | None = None
    node: Name | None = None  # node name; completed pods have none
    devices: Annotated[tuple[Count, ...], Field(max_length=1024, strict=False)] | None = None
    state: Literal["running", "starting", "stopping", "stuck", "reserved", "completed"] = "running"
    started: Moment | None = None


Pods = Annotated[tuple[PodDocument, ...], Field(strict=False)]


class ScenarioWorkload(WorkloadSpec):
    """Workload document with the workload's current state."""

    project: Name  # project name; scenarios have no default project
    pods: Pods = ()
    runtime_seconds: Annotated[Seconds, Field(ge=1)] | None = None
    started: Moment | None = None
    last_checkpoint: Moment | None = None
    preemptions: Count = 0
    restarts: Count = 0
    avoided_nodes: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    backoff_until: Moment | None = None
    stale_since: Moment | None = None
    suspended: bool = False
    misconfigured: Text = ""
    awaits_code: Text = ""


class ReservationDocument(Document):
    workload: Name
    role: Name | None = None
    index: Count = 0
    node: Name
    devices: Annotated[tuple[Count, ...], Field(max_length=1024, strict=False)] = ()
    expires: Moment | None = None


class QuotaGroupDocument(Document):
    """Pools that share quotas. Queues set such a quota in `quotas`, with the group's name as the key."""

    name: Name
    pools: Annotated[tuple[Name, ...], Field(min_length=1, strict=False)]


class ScenarioDocument(Document):
    format: Literal["berth.scenario/1"]
    now: Moment | None = None
    cycle_seconds: Annotated[Seconds, Field(ge=1)] = 1
    pools: Annotated[tuple[PoolDocument, ...], Field(min_length=1, strict=False)] = (
        PoolDocument(name="default"),
    )
    nodes: Annotated[tuple[NodeDocument, ...], Field(strict=False)] = ()
    quota_groups: Annotated[tuple[QuotaGroupDocument, ...], Field(strict=False)] = ()
    departments: Annotated[tuple[DepartmentDocument, ...], Field(strict=False)] = ()
    projects: Annotated[tuple[ProjectDocument, ...], Field(strict=False)] = ()
    workloads: Annotated[tuple[ScenarioWorkload, ...], Field(strict=False)] = ()
    reservations: Annotated[tuple[ReservationDocument, ...], Field(strict=False)] = ()
