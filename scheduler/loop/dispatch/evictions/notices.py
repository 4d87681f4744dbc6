"""Signals that notify pods of an eviction or suspension, ahead of SIGTERM."""

import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from berth.core.spec import WorkloadSpec
from berth.core.values.signals import SIGNALS
from berth.core.wording.words import format_count
from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import fenced_transaction
from berth.db.writes.moves import lock_keys
from pools.runtimes.base import StopNotice
from pools.runtimes.capabilities import runtime_capabilities
from projects.models import Event, Phase, Pod, Workload
from projects.services import announce, events
from scheduler.loop.context import SchedulerContext

ACTOR = "scheduler"
NOTICED_REASONS = frozenset(
    {"Reclaimed", "Preempted", "Consolidated", "Shrunk", "StaleGang", "Drained", "Suspended"}
)


def stop_notice(pod: Pod, spec: WorkloadSpec | None, now: datetime) -> StopNotice | None:
    """Return the notice for a stopping pod, or None if the pod receives no notice."""
    preemption = spec.preemption if spec else None
    may_run_again = pod.workload.phase == Phase.RUNNING or pod.workload.next_phase in (
        Phase.PENDING, Phase.SUSPENDED
    )  # fmt: skip
    if spec is None or preemption is None or pod.stop_reason not in NOTICED_REASONS or not may_run_again:
        return None
    if not runtime_capabilities(pod.node.pool.runtime).sends_notices:
        return None
    lead = timedelta(seconds=preemption.lead)
    if pod.node.interruption_at is not None:
        lead = min(lead, pod.node.interruption_at - now - timedelta(seconds=spec.grace_period_seconds))
    seconds = int(lead.total_seconds())
    return StopNotice(SIGNALS[preemption.signal], seconds) if seconds > 0 else None


def record_notices(
    sent: Mapping[uuid.UUID, tuple[Pod, StopNotice]], now: datetime, context: SchedulerContext
) -> None:
    """Record when pods received their notices, with one event for each workload. Idempotent."""
    started = [pk for pk, (pod, _) in sent.items() if pod.signalled_at is None and pod.started_at is not None]
    if not started:
        return
    with fenced_transaction(context.held_lease):
        unrecorded = lock_keys(Pod.objects.filter(pk__in=started, signalled_at=None))
        Pod.objects.filter(pk__in=unrecorded).update(signalled_at=now)
        pods = Counter(sent[pk][0].workload_id for pk in unrecorded)
        notices = {sent[pk][0].workload_id: sent[pk] for pk in unrecorded}
        rows = Workload.objects.filter(pk__in=pods).select_related("project").order_by("pk")
        workloads = list(rows.only("pk", "name", "spec", "run", "project__department"))
        events.record_all([_notice_event(row, pods[row.pk], notices[row.pk][1]) for row in workloads])
        announce.workloads_changed(workloads)
    crash_point("dispatch.noticed")


def _notice_event(workload: Workload, pods: int, notice: StopNotice) -> Event:
    name = next(name for name, number in SIGNALS.items() if number == notice.signal)
    message = f"{name} sent to {format_count(pods, 'pod')}. SIGTERM follows after {notice.lead_seconds} s."
    data = {"signal": name, "lead_seconds": notice.lead_seconds, "pods": pods, "run": workload.run}
    return events.build("preemption_signal", workload, message, actor=ACTOR, data=data)
