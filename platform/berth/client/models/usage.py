"""Usage, budgets and measured utilization."""

from datetime import datetime

from berth.client.models.base import Model


class Used(Model):
    """Hours of GPUs, cores and GiB; `at` is the start of the period."""

    at: datetime | None = None
    department: str | None = None
    project: str | None = None
    user: str | None = None
    pool: str | None = None
    gpu_hours: float = 0
    cpu_hours: float = 0
    memory_gib_hours: float = 0
    cost: float | None = None


class UsageReport(Model):
    since: datetime
    until: datetime
    total: Used
    items: list[Used]


class BudgetMonth(Model):
    begin: datetime
    end: datetime
    used: float
    percent: float
    pace_per_hour: float
    forecast: float
    forecast_percent: float


class Budget(Model):
    owner: dict[str, str]
    gpu_hours: int
    warn_at: list[int]
    version: int
    month: BudgetMonth


class Allocated(Model):
    gpu: float = 0
    cpu: float = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0


class UsedNow(Model):
    """Resources in use now; None if not measured."""

    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None
    gpu_memory_mib: int | None = None


class Use(Model):
    """`used.gpu` is allocated GPUs times their measured utilization."""

    allocated: Allocated
    used: UsedNow
    gpus_measured: float = 0
    gpu_busy_percent: float | None = None
    measured_at: datetime | None = None
    pods: int = 0
    pods_measured: int = 0


class UsePoint(Model):
    at: datetime
    allocated: Allocated
    used: UsedNow
    gpus_measured: float = 0


class DeviceUse(Model):
    index: int
    busy_percent: float | None = None
    memory_mib: int | None = None
    shared: bool = False


class PodUse(Model):
    pod: str
    run: int
    node: str
    utilization: Use
    devices: list[DeviceUse] = []


class WorkloadUse(Model):
    """Utilization of one workload, summed over its pods, in a list."""

    workload: str
    id: str
    project: str
    pool: str | None = None
    idle_since: datetime | None = None
    now: Use


class OneWorkloadUse(Model):
    """Utilization of one workload over time; `step` is the length of each point in seconds."""

    workload: str
    idle_since: datetime | None = None
    now: Use
    pods: list[PodUse]
    step: int
    over_time: list[UsePoint]


class NodeUse(Model):
    """Utilization of a node; only the answer for a single node has `over_time`."""

    node: str
    pool: str
    now: Use
    devices: list[DeviceUse] = []
    step: int | None = None
    over_time: list[UsePoint] = []


class PoolUse(Model):
    pool: str
    nodes: int
    gpus: int
    now: Use


class UsedHour(Model):
    """GPU-hours in one hour: total, allocated, allocated and measured, used."""

    at: datetime
    total: float
    allocated: float
    measured: float
    used: float


class ClusterUse(Model):
    now: Use
    pools: list[PoolUse]
    hours: list[UsedHour]
