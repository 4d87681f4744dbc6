"""REST answers for allocated and used resources."""

from collections.abc import Iterable
from datetime import datetime

from pydantic import Field

from berth.server.api.responses import Answer, from_milli
from scheduler.reports.utilization import summary
from scheduler.reports.utilization.over_time import Point


class HeldAnswer(Answer):
    gpu: float
    cpu: float
    memory_mib: int
    gpu_memory_mib: int


class InUseAnswer(Answer):
    """Null was not measured, which is not the same as nothing used."""

    gpu: float | None = Field(description="GPUs held, times how much of the time they were busy.")
    cpu: float | None
    memory_mib: int | None
    gpu_memory_mib: int | None


class UseAnswer(Answer):
    measured_at: datetime | None
    pods: int
    pods_measured: int
    held: HeldAnswer
    used: InUseAnswer
    gpu_known: float = Field(description="Of the GPUs held, of how many it is known how busy they are.")
    gpu_busy_percent: float | None = Field(description="Of these.")


class UsePointAnswer(Answer):
    """Averages over a minute or an hour; of memory the most there was."""

    at: datetime
    held: HeldAnswer
    used: InUseAnswer
    gpu_known: float


class DeviceUseAnswer(Answer):
    index: int = Field(description="Its number on the node.")
    busy_percent: float | None
    memory_mib: int | None
    shared: bool = Field(description="The pod holds a part of it; the numbers are those of the whole.")


def use_answer(use: summary.Use) -> UseAnswer:
    return UseAnswer(
        measured_at=use.at,
        pods=use.pods,
        pods_measured=use.measured,
        held=HeldAnswer(
            gpu=_whole(use.held_gpu_milli), cpu=_whole(use.held_cpu_milli), memory_mib=use.held_memory_mib,
            gpu_memory_mib=use.held_gpu_memory_mib,
        ),
        used=InUseAnswer(
            gpu=from_milli(use.gpu_milli), cpu=from_milli(use.cpu_milli), memory_mib=use.memory_mib,
            gpu_memory_mib=use.gpu_memory_mib,
        ),
        gpu_known=_whole(use.known_gpu_milli),
        gpu_busy_percent=use.busy_percent,
    )  # fmt: skip


def point_answers(points: Iterable[Point]) -> list[UsePointAnswer]:
    return [
        UsePointAnswer(
            at=point.at,
            held=HeldAnswer(
                gpu=_whole(point.held_gpu_milli), cpu=_whole(point.held_cpu_milli),
                memory_mib=point.held_memory_mib, gpu_memory_mib=point.held_gpu_memory_mib,
            ),
            used=InUseAnswer(
                gpu=from_milli(point.gpu_milli), cpu=from_milli(point.cpu_milli), memory_mib=point.memory_mib,
                gpu_memory_mib=point.gpu_memory_mib,
            ),
            gpu_known=_whole(point.known_gpu_milli),
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
