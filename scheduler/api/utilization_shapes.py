"""REST models of measured utilization."""

from collections.abc import Iterable
from datetime import datetime

from pydantic import Field

from berth.server.api.responses import Answer, from_milli
from scheduler.reports.utilization import summary
from scheduler.reports.utilization.over_time import Point


class AllocatedAnswer(Answer):
    gpu: float
    cpu: float
    memory_mib: int
    gpu_memory_mib: int


class InUseAnswer(Answer):
    """Measured amounts. Null means not measured, which differs from zero."""

    gpu: float | None = Field(description="Allocated GPUs times their measured utilization.")
    cpu: float | None
    memory_mib: int | None
    gpu_memory_mib: int | None


class UseAnswer(Answer):
    measured_at: datetime | None
    pods: int
    pods_measured: int
    allocated: AllocatedAnswer
    used: InUseAnswer
    gpus_measured: float = Field(description="Allocated GPUs with a measured utilization.")
    gpu_busy_percent: float | None = Field(description="Utilization of the measured GPUs.")


class UsePointAnswer(Answer):
    """Averages over a minute or an hour; peak for memory."""

    at: datetime
    allocated: AllocatedAnswer
    used: InUseAnswer
    gpus_measured: float


class DeviceUseAnswer(Answer):
    index: int = Field(description="Index on the node.")
    busy_percent: float | None
    memory_mib: int | None
    shared: bool = Field(
        description="The pod has a fraction of the device; the numbers are those of the entire device."
    )


def use_answer(use: summary.Use) -> UseAnswer:
    return UseAnswer(
        measured_at=use.at,
        pods=use.pods,
        pods_measured=use.measured,
        allocated=AllocatedAnswer(
            gpu=_whole(use.allocated_gpu_milli), cpu=_whole(use.allocated_cpu_milli),
            memory_mib=use.allocated_memory_mib, gpu_memory_mib=use.allocated_gpu_memory_mib,
        ),
        used=InUseAnswer(
            gpu=from_milli(use.gpu_milli), cpu=from_milli(use.cpu_milli), memory_mib=use.memory_mib,
            gpu_memory_mib=use.gpu_memory_mib,
        ),
        gpus_measured=_whole(use.measured_gpu_milli),
        gpu_busy_percent=use.busy_percent,
    )  # fmt: skip


def point_answers(points: Iterable[Point]) -> list[UsePointAnswer]:
    return [
        UsePointAnswer(
            at=point.at,
            allocated=AllocatedAnswer(
                gpu=_whole(point.allocated_gpu_milli), cpu=_whole(point.allocated_cpu_milli),
                memory_mib=point.allocated_memory_mib, gpu_memory_mib=point.allocated_gpu_memory_mib,
            ),
            used=InUseAnswer(
                gpu=from_milli(point.gpu_milli), cpu=from_milli(point.cpu_milli), memory_mib=point.memory_mib,
                gpu_memory_mib=point.gpu_memory_mib,
            ),
            gpus_measured=_whole(point.measured_gpu_milli),
        )
        for point in points
    ]  # fmt: skip


def device_answers(devices: Iterable[summary.Device]) -> list[DeviceUseAnswer]:
    return [
        DeviceUseAnswer(
            index=device.index,
            busy_percent=None if device.busy_milli is None else device.busy_milli / 10,
            memory_mib=device.memory_mib,
            shared=device.shared,
        )
        for device in devices
    ]


def _whole(milli: int) -> float:
    return from_milli(milli) or 0
