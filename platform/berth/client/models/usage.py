"""Usage, budgets and measured utilization."""

from datetime import datetime

from berth.client.models.base import Model


class UsageRow(Model):
    """Usage in GPU-hours, core-hours and GiB-hours; `at` is the start of the period."""

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
    total: UsageRow
    items: list[UsageRow]


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


class MeasuredResources(Model):
    """Resources currently in use; None if not measured."""

    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None
    gpu_memory_mib: int | None = None


class Utilization(Model):
    """Current utilization. `used.gpu` is the allocated GPUs times their measured utilization."""

    allocated: Allocated
    used: MeasuredResources
    gpus_measured: float = 0
    gpu_busy_percent: float | None = None
    measured_at: datetime | None = None
    pods: int = 0
    pods_measured: int = 0


class UtilizationPoint(Model):
    at: datetime
    allocated: Allocated
    used: MeasuredResources
    gpus_measured: float = 0


class DeviceUtilization(Model):
    index: int
    busy_percent: float | None = None
    memory_mib: int | None = None
    shared: bool = False


class PodUtilization(Model):
    pod: str
    run: int
    node: str
    utilization: Utilization
    devices: list[DeviceUtilization] = []


class WorkloadUtilization(Model):
    """List entry with the utilization of one workload, summed over its pods."""

    workload: str
    id: str
    project: str
    pool: str | None = None
    idle_since: datetime | None = None
    now: Utilization


class WorkloadUtilizationDetail(Model):
    """Utilization of one workload over time; `step` is the interval between points in seconds."""

    workload: str
    idle_since: datetime | None = None
    now: Utilization
    pods: list[PodUtilization]
    step: int
    over_time: list[UtilizationPoint]


class NodeUtilizationDetail(Model):
    """Utilization of a node; `over_time` is set only in the response for a single node."""

    node: str
    pool: str
    now: Utilization
    devices: list[DeviceUtilization] = []
    step: int | None = None
    over_time: list[UtilizationPoint] = []


class PoolUtilization(Model):
    pool: str
    nodes: int
    gpus: int
    now: Utilization


class UtilizationHour(Model):
    """GPU-hours in one hour: existing, allocated, measured among the allocated, and used."""

    at: datetime
    total: float
    allocated: float
    measured: float
    used: float


class ClusterUtilization(Model):
    now: Utilization
    pools: list[PoolUtilization]
    hours: list[UtilizationHour]
