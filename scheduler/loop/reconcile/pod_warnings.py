"""Record warnings about running pods, such as a process that was killed at the memory limit."""

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from berth.db.writes.moves import RowChange, change_rows
from berth.db.writes.set_writes import write_with_bisection
from pools.runtimes.base import PodReport
from pools.runtimes.base import PodState as Reported
from projects.engine.pod_sentences import format_pod
from projects.models import Pod, PodState, Workload
from projects.services import announce, events
from scheduler.loop.dispatch.lifecycle.gangs import ACTOR
from scheduler.loop.observe.live_rows import PodRow

log = logging.getLogger(__name__)

KIND = "pod_warning"


@dataclass(frozen=True, slots=True)
class PodWarning:
    """Latest warning about a pod, and the total number of warnings."""

    pod: PodRow
    number: int
    text: str


def find_warnings(pods: Iterable[PodRow], reports: Mapping[uuid.UUID, PodReport]) -> list[PodWarning]:
    """Return the latest warning about each running pod that has unrecorded warnings."""
    return [
        PodWarning(pod, report.warnings, report.warning)
        for pod in pods
        if (report := reports.get(pod.pk)) is not None
        and report.state is Reported.RUNNING
        and report.warnings > pod.warnings
    ]


def record_warnings(warnings: Collection[PodWarning]) -> None:
    """Store each warning with its pod and as an event of its workload. Idempotent."""
    pods = Pod.objects.filter(pk__in=[each.pod.pk for each in warnings], state=PodState.RUNNING)
    locked = pods.select_for_update(no_key=True).order_by("pk")
    counts = dict(locked.values_list("pk", "warnings"))
    new = [each for each in warnings if counts.get(each.pod.pk, each.number) < each.number]
    rejected = write_with_bisection(new, _write_warnings)
    for each, reason in rejected:
        log.error("the warning about pod %s could not be recorded: %s", each.pod.pk, reason)


def _write_warnings(warnings: Sequence[PodWarning]) -> None:
    rows = Workload.objects.select_related("project").in_bulk({each.pod.workload_id for each in warnings})
    changes = [
        RowChange(each.pod.pk, [PodState.RUNNING], {"warnings": each.number, "message": each.text})
        for each in warnings
    ]
    change_rows(Pod, "state", changes)
    events.record_all(
        events.build(
            KIND,
            rows[each.pod.workload_id],
            f"{format_pod(each.pod.role, each.pod.index)}: {each.text}.",
            actor=ACTOR,
            data={"pod": str(each.pod.pk), "role": each.pod.role, "index": each.pod.index},
        )
        for each in warnings
    )
    announce.workloads_changed(list(rows.values()))
