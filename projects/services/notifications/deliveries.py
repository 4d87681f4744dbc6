"""Queue and retry notification deliveries.

A delivery is stored in the transaction of the change that it reports, and sent by the task queue. It can
arrive twice, but is not lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F
from django_q.tasks import async_task

from berth.core.spec.values.addresses import Channel, detect_channel
from berth.core.values.amounts import MILLI
from projects.delivering.http import DeliveryError
from projects.delivering.send import send
from projects.models import Delivery, Phase, Workload, WorkloadArray
from projects.services.notifications import notify

MAX_ATTEMPTS = 8
FIRST_DELAY, MAX_DELAY = timedelta(seconds=30), timedelta(hours=2)
ATTEMPT_TIMEOUT = timedelta(minutes=5)  # another task may retry the delivery after this time
MAX_BATCH = 200
WORKER_DIED = "the delivery task ended unexpectedly"
KIND_BY_PHASE = {
    Phase.RUNNING: "started",
    Phase.COMPLETED: "completed",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "cancelled",
}
UNSCHEDULABLE = "unschedulable"
EVICTION_REASONS = ("Reclaimed", "Preempted")


def event_kind(to: str, reason: str) -> str | None:
    """Return the notification event for a phase change, or None if the change is not reported."""
    if to == Phase.STOPPING:
        return "preempted" if reason in EVICTION_REASONS else None
    return KIND_BY_PHASE.get(Phase(to))


@dataclass(frozen=True, slots=True)
class PhaseChange:
    workload: Workload
    to: str
    reason: str
    message: str


def enqueue_phase_changes(changes: Iterable[PhaseChange], now: datetime) -> int:
    """Queue notifications about phase changes, in the transaction that makes the changes.

    Return the number of deliveries. Phase changes of array tasks are not reported.
    """
    reported = [
        (change, kind)
        for change in changes
        if change.workload.array_id is None and (kind := event_kind(change.to, change.reason))
    ]
    if not reported:
        return 0
    subscriptions = notify.find_subscriptions(
        [change.workload for change, _ in reported], {kind for _, kind in reported}
    )
    return notify.create_deliveries(
        delivery
        for change, kind in reported
        for delivery in _build_deliveries(
            kind,
            _recipient_addresses(change.workload, [kind], subscriptions),
            change.workload,
            change.reason,
            change.message,
            now,
        )
    )


def enqueue_array_ends(ended: Sequence[tuple[WorkloadArray, str]], now: datetime) -> int:
    """Queue notifications in the transaction that ends the arrays.

    Return the number of deliveries. Each item of `ended` is an array with a message.
    """
    arrays = [array for array, _ in ended]
    subscriptions = notify.find_subscriptions(arrays, {array.state for array in arrays})
    return notify.create_deliveries(
        delivery
        for array, message in ended
        for delivery in _build_deliveries(
            array.state,
            _recipient_addresses(array, [array.state], subscriptions),
            array,
            array.state,
            message,
            now,
        )
    )


def enqueue_stopped_tasks(array: WorkloadArray, reason: str, message: str, now: datetime) -> int:
    """Queue deliveries in the transaction that cancels tasks of an array. Return the number of deliveries."""
    subscriptions = notify.find_subscriptions([array], {"cancelled"})
    addresses = _recipient_addresses(array, ["cancelled"], subscriptions)
    return notify.create_deliveries(_build_deliveries("cancelled", addresses, array, reason, message, now))


def enqueue_unschedulable_workloads(reports: Sequence[tuple[Workload, str]], now: datetime) -> int:
    """Queue notifications in the transaction that marks the workloads as unschedulable.

    Return the number of deliveries. Each report is a workload with a message. If there is no subscription,
    the submitter gets an email. An array is reported once.
    """
    merged = _merge_tasks_into_arrays(reports, now)
    kinds = [UNSCHEDULABLE, "failed"]
    subscriptions = notify.find_subscriptions([workload for workload, _ in merged], set(kinds))
    addresses = _addresses_or_submitter([workload for workload, _ in merged], kinds, subscriptions)
    title = UNSCHEDULABLE.capitalize()
    return notify.create_deliveries(
        delivery
        for workload, message in merged
        for delivery in _build_deliveries(
            UNSCHEDULABLE, addresses[workload.pk], workload, title, message, now
        )
    )


@dataclass(frozen=True, slots=True)
class IdleReport:
    """Warning or suspension of a workload by an idle rule.

    `since` is when the workload's GPUs became idle.
    """

    workload: Workload
    reason: str
    message: str
    since: datetime


def enqueue_idle_notifications(reports: Sequence[IdleReport], now: datetime) -> int:
    """Queue notifications about idle GPUs, in the transaction that stores the warnings or suspensions.

    Return the number of deliveries. If there is no subscription, the submitter gets an email.
    """
    subscriptions = notify.find_subscriptions([report.workload for report in reports], {"idle"})
    addresses = _addresses_or_submitter([report.workload for report in reports], ["idle"], subscriptions)
    return notify.create_deliveries(
        notify.build_delivery("idle", recipient, _idle_content(report, now), now, report.workload)
        for report in reports
        for recipient in addresses[report.workload.pk].values()
    )


def _idle_content(report: IdleReport, now: datetime) -> dict[str, Any]:
    content = _delivery_content(report.workload, "idle", report.reason, report.message, now)
    return {
        **content,
        "gpus": report.workload.gpu_milli_now / MILLI,
        "since": report.since.isoformat(timespec="seconds"),
        "minutes": int((now - report.since) / timedelta(minutes=1)),
    }


def _addresses_or_submitter(
    workloads: Sequence[Workload | WorkloadArray], kinds: Sequence[str], subscriptions: notify.Subscriptions
) -> dict[UUID, Mapping[str, notify.Recipient]]:
    addresses: dict[UUID, Mapping[str, notify.Recipient]] = {
        workload.pk: _recipient_addresses(workload, kinds, subscriptions) for workload in workloads
    }
    if settings.BERTH_SENDS_MAIL:
        without_address = [workload for workload in workloads if not addresses[workload.pk]]
        for pk, address in notify.submitter_addresses(without_address).items():
            addresses[pk] = {address: (address, Channel.MAIL, None)}
    return addresses


def _merge_tasks_into_arrays(
    reports: Sequence[tuple[Workload, str]], now: datetime
) -> list[tuple[Workload | WorkloadArray, str]]:
    """Replace array tasks with their arrays. Omit arrays that have already been reported."""
    messages = {task.array_id: message for task, message in reversed(reports) if task.array_id is not None}
    merged: list[tuple[Workload | WorkloadArray, str]] = [
        (workload, message) for workload, message in reports if workload.array_id is None
    ]
    if messages:
        rows = WorkloadArray.objects.filter(pk__in=messages, unschedulable_at=None)
        arrays = list(rows.select_related("project__department", "submitted_by").order_by("pk"))
        rows.update(unschedulable_at=now)
        merged += [(array, messages[array.pk]) for array in arrays]
    return merged


def _recipient_addresses(
    workload: Workload | WorkloadArray, kinds: Sequence[str], subscriptions: notify.Subscriptions
) -> dict[str, notify.Recipient]:
    entries = workload.spec.get("notifications", ()) if isinstance(workload.spec, dict) else ()
    addresses_in_spec = [
        entry["to"]
        for entry in entries
        if not set(kinds).isdisjoint(entry.get("on", ("completed", "failed")))
    ]
    addresses: dict[str, notify.Recipient] = {}
    for address in addresses_in_spec:
        # Documents stored before addresses were validated may contain addresses that match no channel.
        if channel := detect_channel(address):
            addresses[address] = (address, channel, None)
    for kind in kinds:
        for recipient in subscriptions.recipients(workload, kind):
            addresses.setdefault(recipient[0], recipient)
    return addresses


def _build_deliveries(
    kind: str, addresses: Mapping[str, notify.Recipient], workload: Workload | WorkloadArray, reason: str,
    message: str, now: datetime,
) -> list[Delivery]:  # fmt: skip
    content = _delivery_content(workload, kind, reason, message, now) if addresses else {}
    return [
        notify.build_delivery(kind, recipient, content, now, workload) for recipient in addresses.values()
    ]


def enqueue_delivery_tasks(pks: Iterable[int]) -> None:
    """Enqueue one task per delivery, so that a slow address does not delay other deliveries."""
    for pk in pks:
        async_task(notify.TASK, pk)


def deliver(delivery: int, now: datetime) -> bool:
    """Attempt a delivery if it is due and no other task is attempting it. Return whether the delivery
    succeeded.
    """
    due = Delivery.objects.filter(pk=delivery, state=Delivery.State.PENDING, next_attempt_at__lte=now)
    if not due.update(next_attempt_at=now + ATTEMPT_TIMEOUT, attempts=F("attempts") + 1):
        return False
    row = Delivery.objects.get(pk=delivery)
    if row.attempts > MAX_ATTEMPTS:  # the task crashed on every attempt
        _end_delivery(row, Delivery.State.FAILED, now, attempts=MAX_ATTEMPTS, last_error=WORKER_DIED)
        return False
    try:
        send(row, now)
    except DeliveryError as error:
        _record_failure(row, error, now)
        return False
    _end_delivery(row, Delivery.State.DELIVERED, now, last_error="")
    return True


def enqueue_due_retries(now: datetime) -> int:
    """Enqueue tasks for deliveries that are due for a retry or whose task was killed.

    Return the number of tasks.
    """
    due = Delivery.objects.filter(state=Delivery.State.PENDING, next_attempt_at__lte=now).order_by(
        "next_attempt_at", "pk"
    )
    waiting = list(due.values_list("pk", flat=True)[:MAX_BATCH])
    enqueue_delivery_tasks(waiting)
    return len(waiting)


def delete_old_deliveries(*, before: datetime) -> int:
    return Delivery.objects.exclude(state=Delivery.State.PENDING).filter(at__lt=before).delete()[0]


def retry_delay(attempts: int) -> timedelta:
    return min(MAX_DELAY, FIRST_DELAY * 2 ** (attempts - 1))


def _delivery_content(
    workload: Workload | WorkloadArray, event: str, reason: str, message: str, now: datetime
) -> dict[str, Any]:
    if isinstance(workload, Workload):
        subject = {"workload": workload.name, "workload_id": str(workload.pk), "run": workload.run}
    else:
        subject = {"array": workload.name, "array_id": str(workload.pk)}
    return {
        "event": event,
        **subject,
        "project": workload.project.name,
        "reason": reason,
        "message": message or reason,
        "at": now.isoformat(timespec="seconds"),
    }


def _record_failure(row: Delivery, error: DeliveryError, now: datetime) -> None:
    if error.permanent or row.attempts >= MAX_ATTEMPTS:
        _end_delivery(row, Delivery.State.FAILED, now, last_error=str(error)[:500])
        return
    Delivery.objects.filter(pk=row.pk, state=Delivery.State.PENDING).update(
        next_attempt_at=now + retry_delay(row.attempts), last_error=str(error)[:500]
    )


def _end_delivery(row: Delivery, state: str, now: datetime, **columns: Any) -> None:
    Delivery.objects.filter(pk=row.pk, state=Delivery.State.PENDING).update(
        state=state, ended_at=now, **columns
    )
