"""Release the resources of pods that a cluster keeps rejecting.

A starting workload is requeued. A running workload is scaled down to the replicas that have started.
"""

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from berth.core.wording.words import format_count
from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import fenced_transaction
from berth.db.writes.set_writes import write_with_bisection
from projects.models import Event, Phase, Pod, PodState, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services import announce, events
from projects.services.workloads.phase_transitions import PhaseTransition
from scheduler.engine.backoff import backoff_seconds
from scheduler.loop.context import SchedulerContext, SentCommands
from scheduler.loop.dispatch.lifecycle.gangs import (
    ACTOR,
    START_REJECTED,
    Gang,
    build_gang_facts,
    change_phases_and_stop_pods,
    load_gangs,
)
from scheduler.loop.dispatch.lifecycle.verdict import meets_all_minimums

log = logging.getLogger(__name__)

RETRY_INTERVAL = timedelta(seconds=5)
PATIENCE = timedelta(seconds=60)
FIRST_BACKOFF = 4  # number of evictions that would cause the same backoff as the first release: 40 s


def was_rejected_recently(pod: Pod, now: datetime, sent: SentCommands) -> bool:
    return pod.pk in sent.rejected and now - sent.rejected[pod.pk] < RETRY_INTERVAL


def handle_rejections(
    starting: Sequence[Pod],
    accepted: Collection[uuid.UUID],
    rejected: Mapping[uuid.UUID, str],
    now: datetime,
    context: SchedulerContext,
) -> None:  # fmt: skip
    """Record rejected pods, and release workloads whose starts have been rejected for too long.

    `rejected` maps pods to messages. `starting` contains all starting pods.
    """
    _record_rejections(starting, accepted, rejected.keys(), now, context.sent)
    messages = {pod.workload_id: rejected[pod.pk] for pod in reversed(starting) if pod.pk in rejected}
    _release_rejected_gangs(messages, now, context)


def _record_rejections(
    starting: Collection[Pod],
    accepted: Collection[uuid.UUID],
    rejected: Collection[uuid.UUID],
    now: datetime,
    sent: SentCommands,
) -> None:  # fmt: skip
    pods = {pod.pk for pod in starting}
    earlier = {pk: at for pk, at in sent.rejected.items() if pk in pods and pk not in accepted}
    sent.rejected = {**earlier, **dict.fromkeys(rejected, now)}
    affected = {pod.workload_id for pod in starting if pod.pk in sent.rejected}
    sent.rejected_since = {pk: sent.rejected_since.get(pk, now) for pk in affected}


def _release_rejected_gangs(
    messages: Mapping[uuid.UUID, str], now: datetime, context: SchedulerContext
) -> None:
    sent = context.sent
    due = {
        pk: text
        for pk, text in messages.items()
        if pk in sent.rejected_since and now - sent.rejected_since[pk] >= PATIENCE
    }
    if not due:
        return
    with fenced_transaction(context.held_lease):
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        locked = list(rows.filter(pk__in=due, phase__in=(Phase.STARTING, Phase.RUNNING)).order_by("pk"))
        workloads = [row for row in locked if row.phase == Phase.STARTING]
        rejected = write_with_bisection(
            workloads,
            lambda part: change_phases_and_stop_pods(
                [_release_transition(row, due[row.pk], now, sent) for row in part], now
            ),
        )
        running = [row for row in locked if row.phase == Phase.RUNNING]
        workloads += _scale_down(load_gangs(running, context.specs), due, now, sent)
    for row, reason in rejected:
        log.error("workload %s was rejected and could not be requeued: %s", row.pk, reason)
    for row in workloads:
        sent.releases[row.pk] = sent.releases.get(row.pk, 0) + 1
    unfinished = Workload.objects.filter(pk__in=sent.releases).exclude(phase__in=ENDED_PHASES)
    sent.releases = {pk: sent.releases[pk] for pk in unfinished.values_list("pk", flat=True)}
    crash_point("dispatch.rejected")


def _scale_down(
    gangs: Iterable[Gang], rejections: Mapping[uuid.UUID, str], now: datetime, sent: SentCommands
) -> list[Workload]:
    """Stop the rejected replicas of gangs that meet their minimum without them, and return the workloads of
    these gangs.
    """
    stopped: list[Pod] = []
    scaled_down: list[Workload] = []
    new_events: list[Event] = []
    for gang in gangs:
        workload, rejected = gang.workload, [pod for pod in gang.pods if _is_rejected(pod, sent)]
        others = Gang(workload, [pod for pod in gang.pods if not _is_rejected(pod, sent)], gang.spec)
        if not rejected or not meets_all_minimums(gang.spec.tree, build_gang_facts(others).pods):
            continue
        until = _backoff_end(workload, now, sent)
        Workload.objects.filter(pk=workload.pk).update(backoff_until=until)
        message = (
            f"Scaled down by {format_count(len(rejected), 'replica')}, because the pool's cluster refused to "
            f"start them for {PATIENCE.total_seconds():.0f} s: {rejections[workload.pk]}. The workload can "
            f"scale up again at {until:%Y-%m-%d %H:%M:%S} UTC."
        )
        new_events.append(
            events.build("shrunk", workload, message, actor=ACTOR, data={"pods": len(rejected)})
        )
        stopped += rejected
        scaled_down.append(workload)
    if stopped:
        rejected_pods = Pod.objects.filter(pk__in=[pod.pk for pod in stopped], state=PodState.STARTING)
        rejected_pods.update(state=PodState.STOPPING, stop_reason=START_REJECTED, since=now)
        events.record_all(new_events)
        announce.workloads_changed(scaled_down)
    return scaled_down


def _is_rejected(pod: Pod, sent: SentCommands) -> bool:
    return pod.pk in sent.rejected and pod.state == PodState.STARTING


def _backoff_end(workload: Workload, now: datetime, sent: SentCommands) -> datetime:
    times = FIRST_BACKOFF + sent.releases.get(workload.pk, 0)
    return now + timedelta(seconds=backoff_seconds(times))


def _release_transition(
    workload: Workload, rejection: str, now: datetime, sent: SentCommands
) -> PhaseTransition:
    message = f"The pool's cluster rejected its pods for {PATIENCE.total_seconds():.0f} s: {rejection}."
    columns = {
        "next_phase": Phase.PENDING,
        "backoff_until": _backoff_end(workload, now, sent),
        "start_refusal": f"the pool's cluster rejected its pods: {rejection}",
    }
    data = {"run": workload.run}
    return PhaseTransition(
        workload, [Phase.STARTING], Phase.STOPPING, "StartRejected", message, data=data, columns=columns
    )
