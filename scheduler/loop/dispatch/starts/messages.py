"""Messages that explain why starting pods are not running yet, such as a slow image pull."""

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from berth.db.loops.crash_points import assert_no_transaction
from berth.db.loops.lease import fenced_transaction
from berth.db.writes.moves import RowChange
from berth.db.writes.set_writes import write_changes
from pools.runtimes.base import PodReport
from projects.engine.pod_sentences import format_pod
from projects.models import Phase, PodState, Workload
from projects.services import announce
from scheduler.loop.context import SchedulerContext
from scheduler.loop.observe.live_rows import PodRow

WRITE_INTERVAL = timedelta(seconds=1)  # minimum time between two messages about a workload


def store_start_messages(messages: Mapping[uuid.UUID, str], now: datetime, context: SchedulerContext) -> int:
    """Store the messages about starting workloads that have changed, and return their number.

    A message may be left for a later tick.
    """
    assert_no_transaction()
    shown = context.start_messages.shown
    due = {
        pk: text
        for pk, text in messages.items()
        if pk not in shown or (shown[pk][0] != text and now - shown[pk][1] >= WRITE_INTERVAL)
    }
    if not due:
        return 0
    with fenced_transaction(context.held_lease):
        changes = [RowChange(pk, [Phase.STARTING], {"message": text}) for pk, text in due.items()]
        written = write_changes(Workload, "phase", changes)
        rows = Workload.objects.filter(pk__in=written).select_related("project")
        announce.workloads_changed(list(rows.only("pk", "project__department")))
    shown.update((pk, (text, now)) for pk, text in due.items())
    return len(written)


def progress_messages(
    pods: Iterable[PodRow], reports: Mapping[uuid.UUID, PodReport], now: datetime, context: SchedulerContext
) -> dict[uuid.UUID, str]:
    """Return progress messages of starting workloads, and record which of the workloads are pulling their
    image.
    """
    starting: dict[uuid.UUID, list[tuple[PodRow, str]]] = {}
    pulling = set()
    for pod in pods:
        if pod.state == PodState.STARTING:
            report = reports.get(pod.pk)
            starting.setdefault(pod.workload_id, []).append((pod, report.progress if report else ""))
            if report is not None and report.pulls_image:
                pulling.add(pod.workload_id)
    context.start_messages.retain_workloads(starting)
    context.start_messages.pulling = frozenset(pulling)
    messages = {}
    for pk, entries in starting.items():
        context.start_messages.record_progress(pk, tuple(progress for _, progress in entries), now)
        if text := context.start_messages.failures.get(pk) or _progress_text(entries):
            messages[pk] = text
    return messages


def _progress_text(entries: list[tuple[PodRow, str]]) -> str:
    """Return the first progress that a pod reports and the number of other starting pods, or "" if no pod
    reports any.
    """
    pod, progress = next(((pod, text) for pod, text in entries if text), (None, ""))
    if pod is None:
        return ""
    others = f"; {len(entries) - 1} more starting" if len(entries) > 1 else ""
    return f"{format_pod(pod.role, pod.index)}: {progress}{others}."
