"""Requeue workloads whose pods a cluster keeps refusing, so that they do not hold capacity forever."""

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from berth.db.crash_points import crash_point
from berth.db.lease import fenced_transaction
from berth.db.set_writes import write_in_halves
from projects.models import Phase, Pod, Workload
from projects.services.workloads.moves import Move
from scheduler.engine.backoff import backoff_seconds
from scheduler.loop.context import SchedulerContext, SentCommands
from scheduler.loop.dispatch.gangs import move_and_stop

log = logging.getLogger(__name__)

RETRY_INTERVAL = timedelta(seconds=5)
PATIENCE = timedelta(seconds=60)
FIRST_BACKOFF = 4  # the first backoff is as long as that after this many evictions: 40 s


def was_refused_recently(pod: Pod, now: datetime, sent: SentCommands) -> bool:
    return pod.pk in sent.refused and now - sent.refused[pod.pk] < RETRY_INTERVAL


def handle_refusals(
    starting: Sequence[Pod], accepted: Collection[uuid.UUID], refused: Mapping[uuid.UUID, str], now: datetime,
    context: SchedulerContext,
) -> None:  # fmt: skip
    """Record which pods were refused, and requeue workloads that have been refused for too long.

    `refused` contains the refusals by pod. `starting` contains all starting pods. A refused pod stays refused
    until it is `accepted`: the next call may take longer than a tick.
    """
    _record_refusals(starting, accepted, refused.keys(), now, context.sent)
    messages = {pod.workload_id: refused[pod.pk] for pod in reversed(starting) if pod.pk in refused}
    _release_refused(messages, now, context)


def _record_refusals(
    starting: Collection[Pod], accepted: Collection[uuid.UUID], refused: Collection[uuid.UUID], now: datetime,
    sent: SentCommands,
) -> None:  # fmt: skip
    """Record refusals, and forget pods that were accepted or are no longer starting."""
    pods = {pod.pk for pod in starting}
    earlier = {pk: at for pk, at in sent.refused.items() if pk in pods and pk not in accepted}
    sent.refused = {**earlier, **dict.fromkeys(refused, now)}
    affected = {pod.workload_id for pod in starting if pod.pk in sent.refused}
    sent.refused_since = {pk: sent.refused_since.get(pk, now) for pk in affected}


def _release_refused(messages: Mapping[uuid.UUID, str], now: datetime, context: SchedulerContext) -> None:
    """Requeue the starting workloads that have been refused for too long, with an increasing backoff.

    `messages` contains the refusals by workload. Running workloads keep their other pods.
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
        workloads = list(rows.filter(pk__in=due, phase=Phase.STARTING).order_by("pk"))
        rejected = write_in_halves(
            workloads,
            lambda part: move_and_stop([_release(row, due[row.pk], now, sent) for row in part], now),
        )
    for row, reason in rejected:
        log.error("workload %s was refused and could not be requeued: %s", row.pk, reason)
    for row in workloads:
        sent.releases[row.pk] = sent.releases.get(row.pk, 0) + 1
    crash_point("dispatch.refused")


def _release(workload: Workload, refusal: str, now: datetime, sent: SentCommands) -> Move:
    times = FIRST_BACKOFF + sent.releases.get(workload.pk, 0)
    message = f"The pool's cluster refused its pods for {PATIENCE.total_seconds():.0f} s: {refusal}."
    columns = {
        "next_phase": Phase.PENDING,
        "backoff_until": now + timedelta(seconds=backoff_seconds(times)),
        "start_refusal": refusal,
    }
    data = {"run": workload.run}
    return Move(
        workload, [Phase.STARTING], Phase.STOPPING, "StartRefused", message, data=data, columns=columns
    )
