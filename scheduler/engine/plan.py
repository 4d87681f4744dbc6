"""Output of the engine as frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

from berth.core.backports import StrEnum
from berth.core.values.amounts import Amounts, Bounds


class Kind(StrEnum):
    """Kind of engine action that produced a bundle.

    Drains have no kind, because they are not engine actions.
    """

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    CONSOLIDATE = "consolidate"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE_GANG = "stale_gang"
    RESERVE = "reserve"


class Reason(StrEnum):
    """Reasons why a workload is pending, most dominant first."""

    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    DEPENDENCY_NOT_MET = "DependencyNotMet"
    FETCHING_CODE = "FetchingCode"
    NO_MATCHING_NODE = "NoMatchingNode"
    EXCEEDS_NODE_SHAPE = "ExceedsNodeShape"
    EXCEEDS_POOL_MAX = "ExceedsPoolMax"
    EXCEEDS_DOMAIN = "ExceedsDomain"
    NODES_UNAVAILABLE = "NodesUnavailable"
    PROJECT_LIMIT = "ProjectLimit"
    DEPARTMENT_LIMIT = "DepartmentLimit"
    CLUSTER_QUOTA = "ClusterQuota"
    NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"
    DEPARTMENT_OVERSOLD = "DepartmentOversold"
    WOULD_EXCEED_FAIR_SHARE = "WouldExceedFairShare"
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    FRAGMENTED = "Fragmented"
    TOPOLOGY = "Topology"
    WAITING_FOR_GANG = "WaitingForGang"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    WAITING_FOR_SCALE_UP = "WaitingForScaleUp"
    IN_PREEMPTION_DELAY = "InPreemptionDelay"
    BACKOFF = "Backoff"
    BEHIND_RESERVATION = "BehindReservation"
    NO_RECLAIMABLE_RESOURCES = "NoReclaimableResources"
    VICTIMS_PROTECTED = "VictimsProtected"
    PLACEMENT_ATTEMPTS_EXHAUSTED = "PlacementAttemptsExhausted"


Numbers = Mapping[str, int | float | str | None]  # values in milli-GPU, milli-CPU, MiB, seconds or counts
# Reasons that make a workload unschedulable until the pool's maximum size or its nodes change.
UNSCHEDULABLE_REASONS = frozenset({
    Reason.NO_MATCHING_NODE, Reason.EXCEEDS_NODE_SHAPE, Reason.EXCEEDS_POOL_MAX, Reason.EXCEEDS_DOMAIN,
})  # fmt: skip


def policy_rejection_sort_key(numbers: Numbers) -> tuple[float, float]:
    """Return a sort key for policy rejections. The smallest relative shortfall has the greatest key."""
    missing, requested = float(numbers.get("missing") or 0), float(numbers.get("requested") or 0)
    return -missing / max(1, requested), float(numbers.get("reclaimable") or 0)


@dataclass(frozen=True, slots=True)
class Place:
    """Step that starts a replica on a node, or reserves capacity that is not free yet."""

    workload: str
    role: str
    index: int
    node: str
    devices: tuple[int, ...]
    milli: int  # fraction of each device, in thousandths
    reserved: bool = False


@dataclass(frozen=True, slots=True)
class Evict:
    """Step that stops a replica on its node. In a move, a `Place` of the same replica follows."""

    workload: str
    role: str
    index: int
    node: str
    devices: tuple[int, ...]
    milli: int


Step = Place | Evict


@dataclass(frozen=True, slots=True)
class QueueImpact:
    """Effect of a bundle on one queue in one pool: its allocation before and after, with its quota and fair
    share.
    """

    queue: str
    quota: Bounds
    share: Amounts
    allocated_before: Amounts
    allocated_after: Amounts
    usage: float = 0.0


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason why a workload is pending, with its message and numbers."""

    reason: Reason
    message: str
    numbers: Numbers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Audit record of one evicted workload: victim, preemptor, rule and cost."""

    kind: Kind
    workload: str
    preemptor: str | None
    rule: str  # rule that allowed the eviction, in words and numbers
    pods: tuple[tuple[str, int], ...]  # role and index of each pod
    whole: bool  # whether the entire gang is requeued
    victim: tuple[QueueImpact, ...] = ()  # impact on the victim's project, then on its department
    winner: tuple[QueueImpact, ...] = ()
    rejected: tuple[Blocker, ...] = ()  # reasons why the preemptor could not start without the eviction
    lost_gpu_seconds: int = 0
    earns_backoff: bool = True  # False if only the victim's turn ended; the victim may restart immediately


@dataclass(frozen=True, slots=True)
class Bundle:
    """Steps for one workload, committed together or not at all."""

    kind: Kind
    workload: str  # the workload that is placed, or stopped if the kind is `stale_gang`
    pool: str
    steps: tuple[Step, ...]
    evictions: tuple[Eviction, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    workload: str
    blockers: tuple[Blocker, ...]  # reasons, most important first; never empty
    position: int | None  # queue position from 1; None if unschedulable or reserved
    key: tuple[str, ...] = ()  # sort key that determines the position, in words
    expected_start: int | None = None  # start time based on declared runtimes; None if unknown
    pool: str = ""


@dataclass(frozen=True, slots=True)
class QueueReport:
    queue: str
    pool: str
    quota: Bounds
    limit: Bounds
    share: Amounts
    allocated: Amounts
    requested: Amounts
    usage: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class UnmetShape:
    """Request of pending replicas, and their number. Replicas that exceed limits are not counted."""

    workload: str  # the first workload with this request
    role: str
    workloads: int  # number of the project's workloads with the same request
    replicas: int  # number of replicas per workload
    amounts: Amounts
    devices: int
    gang: bool  # whether all of the workload's pending replicas must start together


class Load(NamedTuple):
    """Resources that pods use on nodes. CPU and memory are the pods' limits."""

    gpu: int = 0
    cpu: int = 0
    memory_mib: int = 0
    pods: int = 0

    def plus(self, other: "Load") -> "Load":
        return Load(*map(add, self, other))


NO_LOAD = Load()


@dataclass(frozen=True, slots=True)
class Demand:
    """Load waiting for nodes (`queued`), and load on nodes once the plan is applied (`placed`)."""

    pool: str
    queued: Load = NO_LOAD
    placed: Load = NO_LOAD
    nodes_wanted: int = 0  # additional nodes of the pool's shape, within its maximum
    shapes: tuple[UnmetShape, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    bundles: tuple[Bundle, ...] = ()
    rejections: Sequence[Rejection] = ()  # rejections sorted by pool, then by queue position
    queues: tuple[QueueReport, ...] = ()
    demand: tuple[Demand, ...] = ()
    trials: int = 0
    notes: tuple[str, ...] = ()  # notes on inconsistent input that was skipped
