"""Record warnings about running pods, such as a process that was killed at the memory limit."""

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pools.runtimes.base import PodReport
from pools.runtimes.base import PodState as Reported
from projects.models import Pod, PodState, Workload
from projects.services import announce, events
from scheduler.loop.dispatch.gangs import ACTOR
from scheduler.loop.observe.workloads import PodRow

KIND = "pod_warning"


@dataclass(frozen=True, slots=True)
class PodWarning:
    """Latest warning about a pod, and the number of its warnings so far."""

    pod: PodRow
    number: int
    text: str


def find_warnings(pods: Iterable[PodRow], reports: Mapping[uuid.UUID, PodReport]) -> list[PodWarning]:
    """Return the warnings that have not been recorded yet. Nodes limit how often they warn about a pod."""
    return [
        PodWarning(pod, report.warnings, report.warning)
        for pod in pods
        if (report := reports.get(pod.pk)) is not None
        and report.state is Reported.RUNNING
        and report.warnings > pod.warnings
    ]


def record_warnings(warnings: Collection[PodWarning]) -> None:
    """Store each warning with its pod and as an event of its workload. Idempotent."""
    workloads = Workload.objects.in_bulk({each.pod.workload_id for each in warnings})
    for each in warnings:
        rows = Pod.objects.filter(pk=each.pod.pk, warnings__lt=each.number, state=PodState.RUNNING)
        if rows.update(warnings=each.number, message=each.text):
            workload = workloads[each.pod.workload_id]
            message = f"{each.pod.role} {each.pod.index}: {each.text}."
            data = {"pod": str(each.pod.pk), "role": each.pod.role, "index": each.pod.index}
            events.record(KIND, workload, message, actor=ACTOR, data=data)
            announce.workload_changed(workload)
