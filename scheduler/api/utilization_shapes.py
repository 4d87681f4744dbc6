"""REST models for measured utilization."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pydantic import Field

from berth.server.api.responses import ResponseModel, from_milli
from scheduler.reports.utilization import summary
from scheduler.reports.utilization.over_time import MeanUtilization


class AllocatedResourcesResponse(ResponseModel):
    gpu: float
    cpu: float
    memory_mib: int
    gpu_memory_mib: int


class UsedResourcesResponse(ResponseModel):
    """Measured amounts. Null means that an amount was not measured, not that it is zero."""

    gpu: float | None = Field(description="Allocated GPUs times their measured utilization.")
    cpu: float | None
    memory_mib: int | None
    gpu_memory_mib: int | None


class UtilizationResponse(ResponseModel):
    """Current utilization."""

    measured_at: datetime | None
    pods: int
    pods_measured: int
    allocated: AllocatedResourcesResponse
    used: UsedResourcesResponse
    gpus_measured: float = Field(description="Allocated GPUs with measured utilization.")
    gpu_busy_percent: float | None = Field(description="Utilization of the measured GPUs.")


class UtilizationPointResponse(ResponseModel):
    """Averages over one minute or one hour. Memory values are peaks."""

    at: datetime
    allocated: AllocatedResourcesResponse
    used: UsedResourcesResponse
    gpus_measured: float


class DeviceUtilizationResponse(ResponseModel):
    index: int = Field(description="Index on the node.")
    busy_percent: float | None
    memory_mib: int | None
    shared: bool = Field(
        description="True if the pod has a fraction of the device. The values are for the entire device."
    )


def serialize_utilization(use: summary.Utilization) -> UtilizationResponse:
    return UtilizationResponse(
        measured_at=use.at,
        pods=use.pods,
        pods_measured=use.measured,
        gpu_busy_percent=use.busy_percent,
        **_resource_fields(use),
    )


def serialize_points(points: Iterable[MeanUtilization]) -> list[UtilizationPointResponse]:
    return [UtilizationPointResponse(at=point.at, **_resource_fields(point)) for point in points]


def _resource_fields(measured: summary.Utilization | MeanUtilization) -> dict[str, Any]:
    return {
        "allocated": AllocatedResourcesResponse(
            gpu=_to_units(measured.allocated_gpu_milli), cpu=_to_units(measured.allocated_cpu_milli),
            memory_mib=measured.allocated_memory_mib, gpu_memory_mib=measured.allocated_gpu_memory_mib,
        ),
        "used": UsedResourcesResponse(
            gpu=from_milli(measured.gpu_milli), cpu=from_milli(measured.cpu_milli),
            memory_mib=measured.memory_mib, gpu_memory_mib=measured.gpu_memory_mib,
        ),
        "gpus_measured": _to_units(measured.measured_gpu_milli),
    }  # fmt: skip


def serialize_devices(devices: Iterable[summary.DeviceMeasurements]) -> list[DeviceUtilizationResponse]:
    return [
        DeviceUtilizationResponse.from_row(
            device, busy_percent=None if device.busy_milli is None else device.busy_milli / 10
        )
        for device in devices
    ]


def _to_units(milli: int) -> float:
    return from_milli(milli) or 0
