"""Queue and retry notification deliveries.

What is to be told is written in the transaction of the move it tells of. The task queue carries it out; a
delivery whose carrier died is due again a little later, so it may arrive twice but is never lost.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import F
from django_q.tasks import async_task

from berth.core.spec.addresses import Channel, channel_of
from projects.delivering.http import NotTaken
from projects.delivering.send import send
from projects.models import Delivery, Phase, Workload
from projects.services.notifications import notify

MOST_TRIES = 8
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=30), timedelta(hours=2)
CARRIED_FOR = timedelta(minutes=5)  # then it is somebody else's to try
MOST_AT_ONCE = 200
NOBODY_CAME_BACK = "whoever carried it did not come back"
NEWS = {
    Phase.RUNNING: "started",
    Phase.COMPLETED: "completed",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "cancelled",
}
UNSCHEDULABLE = "unschedulable"
GAVE_WAY = ("Reclaimed", "Preempted")


def news_of(to: str, reason: str) -> str | None:
    """What a move is called in a document's `notifications`; None for one that nobody is told of."""
    if to == Phase.STOPPING:
        return "preempted" if reason in GAVE_WAY else None
    return NEWS.get(Phase(to))


def remember(workload: Workload, *, to: str, reason: str, message: str, now: datetime) -> int:
    """In the transaction of the move. Returns how many are to be told."""
    told = news_of(to, reason)
    if told is None:
        return 0
    return _write(told, _addresses(workload, [told]), workload, reason, message, now)


def remember_unschedulable(workload: Workload, message: str, now: datetime) -> int:
    """In the transaction that marks the workload. Return how many addresses are notified.

    It goes to every address that wants to hear of failures, too: the workload will neither fail nor complete.
    Where there is none, it goes to the mail address of the person who submitted the workload.
    """
    addresses = _addresses(workload, [UNSCHEDULABLE, "failed"])
    if not addresses and settings.BERTH_SENDS_MAIL:
        addresses = {address: (address, Channel.MAIL, None) for address in notify.owner_addresses(workload)}
    return _write(UNSCHEDULABLE, addresses, workload, UNSCHEDULABLE.capitalize(), message, now)


def _addresses(workload: Workload, kinds: Sequence[str]) -> dict[str, notify.Addressed]:
    """Every address once: those of the document, and those of subscriptions."""
    wanted = workload.spec.get("notifications", ()) if isinstance(workload.spec, dict) else ()
    named = [
        entry["to"] for entry in wanted if not set(kinds).isdisjoint(entry.get("on", ("completed", "failed")))
    ]
    addresses: dict[str, notify.Addressed] = {}
    for address in named:
        if channel := channel_of(address):  # a document from before addresses were checked may have none
            addresses[address] = (address, channel, None)
    for kind in kinds:
        for each in notify.subscribers(workload, kind):
            addresses.setdefault(each[0], each)
    return addresses


def _write(
    kind: str, addresses: Mapping[str, notify.Addressed], workload: Workload, reason: str, message: str,
    now: datetime,
) -> int:  # fmt: skip
    content = _content(workload, kind, reason, message, now) if addresses else {}
    for each in addresses.values():
        notify.write(kind, each, content, now, workload)
    return len(addresses)


def deliver(delivery: int, now: datetime) -> bool:
    """One try, if it is due and nobody else is at it. True when it arrived."""
    due = Delivery.objects.filter(pk=delivery, state=Delivery.State.WAITING, due_at__lte=now)
    if not due.update(due_at=now + CARRIED_FOR, tries=F("tries") + 1):
        return False
    row = Delivery.objects.get(pk=delivery)
    if row.tries > MOST_TRIES:  # it ends its carriers, not the other way round
        _end(row, Delivery.State.GIVEN_UP, now, tries=MOST_TRIES, last_error=NOBODY_CAME_BACK)
        return False
    try:
        send(row, now)
    except NotTaken as trouble:
        _failed(row, trouble, now)
        return False
    _end(row, Delivery.State.DELIVERED, now, last_error="")
    return True


def hand_out_due(now: datetime) -> int:
    """Those whose turn comes again, and those whose carrier died. Returns how many."""
    due = Delivery.objects.filter(state=Delivery.State.WAITING, due_at__lte=now).order_by("due_at", "pk")
    waiting = list(due.values_list("pk", flat=True)[:MOST_AT_ONCE])
    for pk in waiting:
        async_task(notify.TASK, pk)
    return len(waiting)


def forget_old(*, before: datetime) -> int:
    return Delivery.objects.exclude(state=Delivery.State.WAITING).filter(at__lt=before).delete()[0]


def pause_after(tries: int) -> timedelta:
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 1))


def _content(workload: Workload, news: str, reason: str, message: str, now: datetime) -> dict[str, Any]:
    return {
        "event": news,
        "workload": workload.name,
        "workload_id": str(workload.pk),
        "project": workload.project.name,
        "run": workload.run,
        "reason": reason,
        "message": message or reason,
        "at": now.isoformat(timespec="seconds"),
    }


def _failed(row: Delivery, trouble: NotTaken, now: datetime) -> None:
    if trouble.for_good or row.tries >= MOST_TRIES:
        _end(row, Delivery.State.GIVEN_UP, now, last_error=str(trouble)[:500])
        return
    Delivery.objects.filter(pk=row.pk, state=Delivery.State.WAITING).update(
        due_at=now + pause_after(row.tries), last_error=str(trouble)[:500]
    )


def _end(row: Delivery, state: str, now: datetime, **columns: Any) -> None:
    Delivery.objects.filter(pk=row.pk, state=Delivery.State.WAITING).update(
        state=state, ended_at=now, **columns
    )
