"""Describe the resource requests of workloads that request neither whole GPUs nor GPU shares."""

from collections.abc import Iterable, Mapping
from typing import Any, cast
from uuid import UUID

from django.db.models import F, Sum

from berth.core.values.amounts import MILLI
from berth.server.web.numbers import memory, thousandths
from projects.models import Workload, WorkloadRole

NO_GPU = "no GPU"


def set_request_labels(rows: Iterable[Workload]) -> None:
    """Set `gpu_label` and `cpu_label` on each workload, for the smallest number of replicas that can start.

    `gpu_label` is "no GPU", or the requested GPU memory, such as "24 GiB GPU memory". `cpu_label` lists the
    cores and the memory, such as "2 cores, 4 GiB". Both are empty if the workload requests whole GPUs or GPU
    shares.
    """
    listed = list(rows)
    without_number = [row.pk for row in listed if not row.gpu_milli_min]
    words = _request_labels(without_number) if without_number else {}
    for row in listed:
        empty = ("" if row.gpu_milli_min else NO_GPU, "")
        cast("Any", row).gpu_label, cast("Any", row).cpu_label = words.get(row.pk, empty)


def _request_labels(workloads: list[UUID]) -> Mapping[UUID, tuple[str, str]]:
    roles = WorkloadRole.objects.filter(workload__in=workloads).order_by().values("workload")
    sums = roles.annotate(
        gpu_memory=Sum(F("min") * F("gpu_devices") * F("gpu_memory_mib")),
        cpu=Sum(F("min") * F("cpu_milli")),
        mib=Sum(F("min") * F("memory_mib")),
    )
    return {
        pk: (f"{memory(gpu_memory)} GPU memory" if gpu_memory else NO_GPU, _cpu_label(cpu, mib))
        for pk, gpu_memory, cpu, mib in sums.values_list("workload", "gpu_memory", "cpu", "mib")
    }


def _cpu_label(cpu_milli: int, memory_mib: int) -> str:
    cores = f"{thousandths(cpu_milli)} {'core' if cpu_milli == MILLI else 'cores'}" if cpu_milli else ""
    return ", ".join(filter(None, [cores, memory(memory_mib) if memory_mib else ""]))
