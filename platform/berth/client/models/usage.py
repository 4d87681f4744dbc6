# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for usage."""

from datetime import datetime

from pydantic import Field

from berth.client.models.base import Model
from berth.client.models.tenants import Owner


class BudgetMonth(Model):
    """GPU-hours in the current calendar month (UTC)."""

    begin: datetime
    end: datetime
    used: float = 0
    percent: float = 0
    pace_per_hour: float = 0
    """Average GPU-hours per hour over the last seven days."""
    forecast: float = 0
    """Forecast of GPU-hours by the end of the month at that rate."""
    forecast_percent: float = 0


class Budget(Model):
    owner: Owner
    gpu_hours: int = 0
    warn_at: list[int] = []
    version: int = 0
    month: BudgetMonth


class AllocatedResources(Model):
    gpu: float = 0
    cpu: float = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0


class UsedResources(Model):
    """Measured amounts. None means that an amount was not measured, not that it is zero."""

    gpu: float | None = None
    """Allocated GPUs times their measured utilization."""
    cpu: float | None = None
    memory_mib: int | None = None
    gpu_memory_mib: int | None = None


class Utilization(Model):
    """Current utilization."""

    measured_at: datetime | None = None
    pods: int = 0
    pods_measured: int = 0
    allocated: AllocatedResources = Field(default_factory=AllocatedResources)
    used: UsedResources = Field(default_factory=UsedResources)
    gpus_measured: float = 0
    """Allocated GPUs with measured utilization."""
    gpu_busy_percent: float | None = None
    """Utilization of the measured GPUs."""


class PoolUtilization(Model):
    pool: str = ""
    nodes: int = 0
    """Nodes that can host pods."""
    gpus: int = 0
    """GPUs of these nodes."""
    now: Utilization = Field(default_factory=Utilization)


class HourlyUtilization(Model):
    """GPU-hours in one hour. The current hour is incomplete."""

    at: datetime
    total: float = 0
    allocated: float = 0
    measured: float = 0
    """Allocated GPU-hours with measured utilization."""
    used: float = 0


class ClusterUtilization(Model):
    now: Utilization = Field(default_factory=Utilization)
    pools: list[PoolUtilization] = []
    hours: list[HourlyUtilization] = []


class DeviceUtilization(Model):
    index: int = 0
    """Index on the node."""
    busy_percent: float | None = None
    memory_mib: int | None = None
    shared: bool = False
    """True if the pod has a fraction of the device. The values are for the entire device."""


class NodeUtilization(Model):
    node: str = ""
    pool: str = ""
    now: Utilization = Field(default_factory=Utilization)
    """Total utilization of the node's pods."""
    devices: list[DeviceUtilization] = []
    """All GPUs of the node. Empty if they are not measured."""


class UtilizationPoint(Model):
    """Averages over one minute or one hour. Memory values are peaks."""

    at: datetime
    allocated: AllocatedResources = Field(default_factory=AllocatedResources)
    used: UsedResources = Field(default_factory=UsedResources)
    gpus_measured: float = 0


class NodeUtilizationDetail(NodeUtilization):
    """Utilization of one node over time."""

    step: int = 0
    over_time: list[UtilizationPoint] = []


class UsageRow(Model):
    """Usage in GPU-hours, core-hours and GiB-hours."""

    at: datetime | None = None
    """Start of the interval; None without a step."""
    department: str | None = None
    project: str | None = None
    user: str | None = None
    """Submitter; empty for Berth's own workloads."""
    pool: str | None = None
    gpu_hours: float = 0
    cpu_hours: float = 0
    memory_gib_hours: float = 0
    cost: float | None = None
    """Cost of the GPU-hours in the currency used for pool prices."""


class UsageReport(Model):
    since: datetime
    until: datetime
    total: UsageRow = Field(default_factory=UsageRow)
    items: list[UsageRow] = []
    next: str | None = None


class WorkloadUtilization(Model):
    """Utilization of one workload, summed over its pods."""

    workload: str = ""
    id: str
    project: str = ""
    pool: str | None = None
    idle_since: datetime | None = None
    now: Utilization = Field(default_factory=Utilization)


class PodUtilization(Model):
    pod: str = ""
    """ROLE-INDEX"""
    run: int = 0
    node: str = ""
    utilization: Utilization = Field(default_factory=Utilization)
    devices: list[DeviceUtilization] = []


class WorkloadUtilizationDetail(Model):
    """Utilization of one workload over time."""

    workload: str = ""
    idle_since: datetime | None = None
    """Time at which the allocated GPUs became idle."""
    now: Utilization = Field(default_factory=Utilization)
    pods: list[PodUtilization] = []
    step: int = 0
    """Seconds between points."""
    over_time: list[UtilizationPoint] = []
    """Measured points, oldest first."""
