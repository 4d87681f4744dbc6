"""Input of the engine as frozen values.

Units are milli-GPU, milli-CPU, MiB and whole seconds. Times are seconds since the Unix epoch. Names are
unique within each kind.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from berth.core.backports import StrEnum
from berth.core.values.amounts import MILLI, UNLIMITED, Amounts, Bounds

NO_GPUS = Bounds(0, None, None)
RESERVATION_AFTER = 600  # default wait in seconds before nodes are held for a pending workload
# Features that a node may lack. Every role requires isolation if nodes must isolate pods.
IMAGES, ISOLATION, SHARED_GPUS = "images", "isolation", "shared_gpus"
VOLUME = "volume:"  # prefix of node features that stand for volumes


class Strategy(StrEnum):
    BINPACK = "binpack"
    SPREAD = "spread"
    FRAGMENTATION = "fragmentation"  # prefer the node that loses the least usable capacity
    AUTO = "auto"  # FRAGMENTATION if nodes or requests are mixed, else BINPACK


class NodeState(StrEnum):
    READY = "ready"
    CORDONED = "cordoned"  # running pods continue, but the node accepts no new pods
    DRAINING = "draining"  # pods are being evicted from the node, and the node accepts no new pods
    BOOTING = "booting"  # the node counts as future capacity, but no pod can start on it yet


class PodState(StrEnum):
    RUNNING = "running"
    STARTING = "starting"
    STOPPING = "stopping"  # the pod occupies its capacity until it has stopped
    STUCK = "stuck"  # the pod occupies its capacity and may never free it
    RESERVED = "reserved"  # capacity is set aside for the pod, which has not started yet
    # The pod has succeeded. It occupies no capacity, but counts towards its gang's minimum.
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Consolidation:
    enabled: bool = True
    max_moves: int | None = None
    max_trials: int | None = None


@dataclass(frozen=True, slots=True)
class FairShareMode:
    """Settings that determine how past usage affects fair shares.

    `half_life` and `window` are in seconds. If neither is set, history does not count.
    """

    time_based: bool = False
    half_life: int | None = None
    window: int | None = None
    tumbling: bool = False
    k: float = 1.0
    count_all: bool = False  # if True, all usage counts toward decayed usage; otherwise only usage over quota


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Shape of the nodes that an elastic pool adds."""

    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    cpu: int = 0
    memory_mib: int = 0
    max_pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple["Taint", ...] = ()
    # Features that new nodes are expected to lack, based on the current nodes.
    missing_features: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    node_strategy: Strategy = Strategy.BINPACK
    device_strategy: Strategy = Strategy.BINPACK
    reclaim_min_runtime: int = 0
    preempt_min_runtime: int = 0
    preemption_delay: int = 0
    stale_gang_grace: int = 60  # seconds until a stale gang is stopped; negative: never
    consolidation: Consolidation = Consolidation()
    fair_share: FairShareMode = FairShareMode()
    over_quota_weights: bool = True
    topology: tuple[str, ...] = ()  # node label keys, outermost first
    reservation_after: int | None = RESERVATION_AFTER  # seconds until nodes are held; None: never
    cpu_load_limit: int = MILLI  # fraction of each node's CPU that may be allocated, in thousandths
    nodes_max: int | None = None  # maximum number of nodes; None if the pool cannot add nodes now
    # Maximum number of nodes even while the pool is paused, drained or failing. None: same as `nodes_max`.
    nodes_ever: int | None = None
    node_shape: NodeShape | None = None


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""  # taint key; an empty key with operator Exists matches any taint
    operator: str = "Equal"  # comparison: "Equal" or "Exists"
    value: str = ""
    effect: str = ""  # effect of the taint; empty: any effect


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    pool: str
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_mib: int = 0  # memory of each device
    cpu: int = 0
    memory_mib: int = 0
    max_pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    state: NodeState = NodeState.READY
    ordinal: int = 0  # number of the node in its pool; 0 is the head node
    ready_at: int | None = None  # expected time at which a booting node is ready
    # Features that the node lacks, with the reasons.
    missing_features: Mapping[str, str] = field(default_factory=dict)
    # The only project that a node without isolation serves. Empty if the node serves all projects.
    only_project: str = ""
    foreign_devices: tuple[int, ...] = ()  # devices used by pods that Berth did not start

    @property
    def usable_gpus(self) -> int:
        return self.gpus - len(self.foreign_devices)

    @property
    def capacity(self) -> Amounts:
        return Amounts(self.usable_gpus * MILLI, self.cpu, self.memory_mib)

    @property
    def shape(self) -> NodeShape:
        return NodeShape(
            self.gpus, self.gpu_model, self.gpu_memory_mib, self.cpu, self.memory_mib, self.max_pods,
            self.labels, self.taints, self.missing_features,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Usage:
    """A queue's decayed usage and its parent's allocation, in unit-seconds by resource."""

    used: tuple[float, float, float] = (0.0, 0.0, 0.0)
    parent: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def fraction_of_parent(self, resource: int) -> float:
        """Return the queue's usage as a fraction of its parent's allocation. The fraction may exceed 1."""
        return self.used[resource] / self.parent[resource] if self.parent[resource] > 0 else 0.0


@dataclass(frozen=True, slots=True)
class ClusterQuota:
    """Quota that the pool's own cluster enforces for a project's pods, such as a Kubernetes ResourceQuota.

    `kind` is `gpu`, `cpu` or `memory_mib` for requests, `limit_cpu` or `limit_memory_mib` for limits, or
    `pods`. `resource` is the name that the cluster uses for this kind. `used` excludes the project's pods in
    this pool.
    """

    name: str
    namespace: str
    resource: str
    kind: str
    hard: int
    used: int = 0
    uid: str = ""


@dataclass(frozen=True, slots=True)
class PoolQuota:
    """Quota, limit and weights of one queue in one pool.

    A quota of None is unlimited. If `group` is set, all pools of the group share the quota and the limit.
    """

    quota: Bounds = NO_GPUS
    limit: Bounds = UNLIMITED
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    over_quota: bool = True
    rank: int = 0
    usage: Usage = Usage()
    cluster_quotas: tuple[ClusterQuota, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class Queue:
    """A department (`parent` is None) or a project (`parent` is its department)."""

    name: str
    parent: str | None = None
    created: int = 0
    # Quotas by pool name. The quota is 0 in pools without an entry.
    pool_quotas: Mapping[str, PoolQuota] = field(default_factory=dict)
    reclaim_min_runtime: int | None = None  # minimum runtime in seconds; None: inherited
    preempt_min_runtime: int | None = None
    # Runtime of workloads without `max_runtime`, estimated from the history of the queue.
    expected_runtime: int | None = None


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """Topology label keys.

    All pods must run on nodes with the same value of the label `required` and, if possible, of `preferred`.
    """

    required: str | None = None
    preferred: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Resources that one replica requests.

    `gpu` is in milli-GPUs on each of `devices` devices: 1000 for whole devices, less for shared devices.
    `gpu_memory_mib` (exclusive with `gpu`) requests memory on each device. `limit_cpu` and `limit_memory_mib`
    equal the request if the role sets no limit.
    """

    gpu: int = 0
    devices: int = 0
    gpu_memory_mib: int = 0
    cpu: int = 0
    memory_mib: int = 0
    limit_cpu: int = 0
    limit_memory_mib: int = 0

    @property
    def amounts(self) -> Amounts:
        """Amounts that count towards quotas. For GPU memory requests, the board adds the GPU amount."""
        return Amounts(self.gpu * self.devices, self.cpu, self.memory_mib)


@dataclass(frozen=True, slots=True)
class ScaleWith:
    role: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Role:
    """Leaf of the workload tree. The gang needs `min` replicas of the role, and may run up to `max`."""

    name: str
    min: int
    max: int
    request: Request
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    gpu_models: tuple[str, ...] = ()  # allowed GPU models; empty: any model
    spread_per_node: int | None = None  # maximum number of the role's replicas per node
    topology: TopologyConstraint | None = None
    scale_with: ScaleWith | None = None
    requires: tuple[str, ...] = ()  # features that the node must have
    avoided_nodes: tuple[str, ...] = ()  # names of nodes on which the workload failed


@dataclass(frozen=True, slots=True)
class RoleGroup:
    """Inner node of the workload tree.

    At least `need` of its children must run. A role runs if at least `min` of its replicas run.
    """

    name: str
    children: tuple["RoleGroup | Role", ...]
    need: int
    topology: TopologyConstraint | None = None


def roles_in(group: RoleGroup) -> Iterator[Role]:
    """Yield a group's roles in document order."""
    for child in group.children:
        if isinstance(child, Role):
            yield child
        else:
            yield from roles_in(child)


@dataclass(frozen=True, slots=True)
class Pod:
    """Placed replica.

    `milli` is the fraction of each device that it uses, in thousandths. `devices` contains device indices.
    """

    role: str
    index: int
    node: str
    devices: tuple[int, ...] = ()
    milli: int = MILLI
    state: PodState = PodState.RUNNING
    started: int = 0


@dataclass(frozen=True, slots=True)
class Dependency:
    """Workload that must reach a final state (completed, failed or any) before its dependent may start.

    `status` is a clause about its current state, or empty.
    """

    workload: str
    state: str = "completed"
    status: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    project: str
    tree: RoleGroup
    pools: tuple[str, ...]  # allowed pools in order of preference; never empty
    priority: int = 50
    preemptible: bool = True
    submitted: int = 0
    max_runtime: int | None = None
    runtime_seconds: int | None = None  # actual runtime in seconds, known only in simulations
    started: int | None = None  # start time of the current run; None if the workload is not running
    last_checkpoint: int | None = None
    preemptions: int = 0
    restarts: int = 0  # number of restarts after failed runs
    backoff_until: int | None = None
    start_refusal: str = ""  # reason why the last start failed, as a clause
    preemption_delay: int | None = None  # delay in seconds; None: the pool's default
    # Seconds until the gang is stopped once it is stale. None: the pool's default; negative: never.
    stale_gang_grace: int | None = None
    stale_since: int | None = None
    endless: bool = False  # whether the workload runs until it is stopped, like a service
    scale_up_adds_nodes: bool = True  # whether pools may add nodes to scale up the workload
    suspended: bool = False
    misconfigured: str = ""  # reason why the workload is unschedulable, as a clause; empty if it is valid
    after: tuple[Dependency, ...] = ()  # workloads that must end before this one starts
    awaits_code: str = ""  # reason why the workload's code is not available yet, as a sentence
    pods: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity of a node reserved for one pod in an earlier cycle."""

    workload: str
    role: str
    index: int
    node: str
    devices: tuple[int, ...] = ()
    milli: int = MILLI
    expires: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    now: int
    pools: tuple[Pool, ...]
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    workloads: tuple[Workload, ...]
    reservations: tuple[Reservation, ...] = ()
