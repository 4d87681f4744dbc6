"""Release the resources of pods that a cluster keeps rejecting.

A starting workload is requeued. A running workload is scaled down to its current replicas.
"""

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from berth.core.words import format_count
from berth.db.crash_points import crash_point
from berth.db.lease import fenced_transaction
from berth.db.set_writes import write_in_halves
from projects.models import Event, Phase, Pod, PodState, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services import announce, events
from projects.services.workloads.moves import Move
from scheduler.engine.backoff import backoff_seconds
from scheduler.loop.context import SchedulerContext, SentCommands
from scheduler.loop.dispatch.gangs import ACTOR, START_REFUSED, Gang, gang_facts, load_gangs, move_and_stop
from scheduler.loop.dispatch.verdict import is_whole

log = logging.getLogger(__name__)

RETRY_INTERVAL = timedelta(seconds=5)
PATIENCE = timedelta(seconds=60)
FIRST_BACKOFF = 4  # the first backoff equals the backoff after this many evictions: 40 s


def was_refused_recently(pod: Pod, now: datetime, sent: SentCommands) -> bool:
    return pod.pk in sent.refused and now - sent.refused[pod.pk] < RETRY_INTERVAL


def handle_refusals(
    starting: Sequence[Pod], accepted: Collection[uuid.UUID], refused: Mapping[uuid.UUID, str], now: datetime,
    context: SchedulerContext,
) -> None:  # fmt: skip
    """Record rejected pods. Release the pods of workloads whose starts have been rejected for too long.

    `refused` maps pods to messages. `starting` contains all starting pods. A pod stays rejected until
    it is `accepted`, because the next attempt may take longer than a tick.
    """
    _record_refusals(starting, accepted, refused.keys(), now, context.sent)
    messages = {pod.workload_id: refused[pod.pk] for pod in reversed(starting) if pod.pk in refused}
    _release_refused(messages, now, context)


def _record_refusals(
    starting: Collection[Pod], accepted: Collection[uuid.UUID], refused: Collection[uuid.UUID], now: datetime,
    sent: SentCommands,
) -> None:  # fmt: skip
    """Record rejections. Remove the records of pods that were accepted or are no longer starting."""
    pods = {pod.pk for pod in starting}
    earlier = {pk: at for pk, at in sent.refused.items() if pk in pods and pk not in accepted}
    sent.refused = {**earlier, **dict.fromkeys(refused, now)}
    affected = {pod.workload_id for pod in starting if pod.pk in sent.refused}
    sent.refused_since = {pk: sent.refused_since.get(pk, now) for pk in affected}


def _release_refused(messages: Mapping[uuid.UUID, str], now: datetime, context: SchedulerContext) -> None:
    """Requeue or scale down workloads whose starts have been rejected for too long.

    `messages` contains the rejections by workload. Each release of the same workload increases its
    backoff.
    """
    sent = context.sent
    due = {
        pk: text
        for pk, text in messages.items()
        if pk in sent.refused_since and now - sent.refused_since[pk] >= PATIENCE
    }
    if not due:
        return
    with fenced_transaction(context.held_lease):
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        locked = list(rows.filter(pk__in=due, phase__in=(Phase.STARTING, Phase.RUNNING)).order_by("pk"))
        workloads = [row for row in locked if row.phase == Phase.STARTING]
        rejected = write_in_halves(
            workloads,
            lambda part: move_and_stop([_release(row, due[row.pk], now, sent) for row in part], now),
        )
        running = [row for row in locked if row.phase == Phase.RUNNING]
        workloads += _scale_down(load_gangs(running, context.specs), due, now, sent)
    for row, reason in rejected:
        log.error("workload %s was rejected and could not be requeued: %s", row.pk, reason)
    for row in workloads:
        sent.releases[row.pk] = sent.releases.get(row.pk, 0) + 1
    unfinished = Workload.objects.filter(pk__in=sent.releases).exclude(phase__in=ENDED_PHASES)
    sent.releases = {pk: sent.releases[pk] for pk in unfinished.values_list("pk", flat=True)}
    crash_point("dispatch.refused")


def _scale_down(
    gangs: Iterable[Gang], refusals: Mapping[uuid.UUID, str], now: datetime, sent: SentCommands
) -> list[Workload]:
    """Stop rejected replicas of locked workloads that meet their minimum without these replicas.

    Return the workloads.
    """
    stopped: list[Pod] = []
    scaled_down: list[Workload] = []
    new_events: list[Event] = []
    for gang in gangs:
        workload, refused = gang.workload, [pod for pod in gang.pods if _is_refused(pod, sent)]
        others = Gang(workload, [pod for pod in gang.pods if not _is_refused(pod, sent)], gang.spec)
        if not refused or not is_whole(gang.spec.tree, gang_facts(others).pods):
            continue
        until = _backoff_end(workload, now, sent)
        Workload.objects.filter(pk=workload.pk).update(backoff_until=until)
        message = (
            f"Scaled down by {format_count(len(refused), 'replica')}, because the pool's cluster refused to "
            f"start them for {PATIENCE.total_seconds():.0f} s: {refusals[workload.pk]}. The workload can "
            f"scale up again at {until:%Y-%m-%d %H:%M:%S} UTC."
        )
        new_events.append(events.build("shrunk", workload, message, actor=ACTOR, data={"pods": len(refused)}))
        stopped += refused
        scaled_down.append(workload)
    if stopped:
        refused_pods = Pod.objects.filter(pk__in=[pod.pk for pod in stopped], state=PodState.STARTING)
        refused_pods.update(state=PodState.STOPPING, stop_reason=START_REFUSED, since=now)
        events.record_all(new_events)
        announce.workloads_changed(scaled_down)
    return scaled_down


def _is_refused(pod: Pod, sent: SentCommands) -> bool:
    return pod.pk in sent.refused and pod.state == PodState.STARTING


def _backoff_end(workload: Workload, now: datetime, sent: SentCommands) -> datetime:
    times = FIRST_BACKOFF + sent.releases.get(workload.pk, 0)
    return now + timedelta(seconds=backoff_seconds(times))


def _release(workload: Workload, refusal: str, now: datetime, sent: SentCommands) -> Move:
    message = f"The pool's cluster rejected its pods for {PATIENCE.total_seconds():.0f} s: {refusal}."
    columns = {
        "next_phase": Phase.PENDING,
        "backoff_until": _backoff_end(workload, now, sent),
        "start_refusal": f"the pool's cluster rejected its pods: {refusal}",
    }
    data = {"run": workload.run}
    return Move(
        workload, [Phase.STARTING], Phase.STOPPING, "StartRefused", message, data=data, columns=columns
    )
