"""Find event subscribers and create deliveries for them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django_q.tasks import async_task

from berth.core.spec.values.addresses import Channel
from berth.db.queries.compiled import compiled_once
from pools.models import NodePool
from projects.access import visible_projects, visible_projects_by_user
from projects.actor import Actor
from projects.models import (
    Budget,
    Delivery,
    Department,
    Phase,
    Schedule,
    Subscription,
    Workload,
    WorkloadArray,
)

TASK = "projects.tasks.deliver"
ENQUEUE_TASK = "projects.tasks.enqueue_deliveries"
POOL_REPEAT = timedelta(hours=6)
MAX_BATCH = 100

SUBSCRIPTIONS = compiled_once(
    lambda projects, departments, users: (
        Subscription.objects.filter(
            Q(project_id__any=projects)
            | Q(department_id__any=departments)
            | Q(user_id__any=users)
            | Q(user__isnull=True, project__isnull=True, department__isnull=True)
        )
        .select_related("user")
        .order_by("pk")
    )
)

Recipient = tuple[str, Channel, Subscription | None]


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Subscriptions that may concern a set of workloads.

    `visible` maps the IDs of subscribed users to the projects that they can see.
    """

    rows: Sequence[Subscription]
    visible: Mapping[int, Collection[int]]

    def recipients(self, workload: Workload | WorkloadArray, event: str) -> Iterable[Recipient]:
        """Yield the addresses that are subscribed to the event for the workload's submitter, project or
        department, or for the platform.
        """
        for row in self.rows:
            if event in row.events and self._covers(row, workload):
                yield row.to, Channel(row.channel), row

    def _covers(self, row: Subscription, workload: Workload | WorkloadArray) -> bool:
        if row.user_id is not None:
            is_visible = workload.project_id in self.visible.get(row.user_id, ())
            return row.user_id == workload.submitted_by_id and is_visible
        if row.project_id is not None:
            return row.project_id == workload.project_id
        return row.department_id in (None, workload.project.department_id)


def find_subscriptions(
    workloads: Collection[Workload | WorkloadArray], events: AbstractSet[str]
) -> Subscriptions:
    """Return the subscriptions that cover one of the workloads and include one of the events."""
    projects = {workload.project_id: workload.project for workload in workloads}
    departments = {project.department_id for project in projects.values()}
    submitters = {workload.submitted_by_id for workload in workloads} - {None}
    covering = SUBSCRIPTIONS([*projects], [*departments], [*submitters])
    rows = [row for row in covering if not events.isdisjoint(row.events)]
    users = {row.user.pk: row.user for row in rows if row.user is not None}
    return Subscriptions(rows, visible_projects_by_user(users.values(), projects.values()))


def submitter_addresses(workloads: Collection[Workload | WorkloadArray]) -> dict[UUID, str]:
    """Return the submitter's email address for each workload that its submitter can see."""
    owners = {row.submitted_by.pk: row.submitted_by for row in workloads if row.submitted_by is not None}
    projects = {row.project_id: row.project for row in workloads}
    visible = visible_projects_by_user(owners.values(), projects.values())
    return {
        row.pk: row.submitted_by.email
        for row in workloads
        if row.submitted_by is not None
        and row.submitted_by.email
        and row.project_id in visible.get(row.submitted_by.pk, ())
    }


def build_delivery(
    kind: str,
    to: Recipient,
    content: dict[str, Any],
    now: datetime,
    workload: Workload | WorkloadArray | None = None,
) -> Delivery:
    address, channel, subscription = to
    return Delivery(
        kind=kind,
        workload_id=workload.pk if isinstance(workload, Workload) else None,
        project_id=workload.project_id if workload else None,
        subscription_id=None if subscription is None else subscription.pk,
        to=address,
        channel=channel,
        content=content,
        next_attempt_at=now,
    )


def create_delivery(
    kind: str, to: Recipient, content: dict[str, Any], now: datetime, workload: Workload | None = None
) -> None:
    """Store a delivery in the caller's transaction and enqueue the task that sends it."""
    create_deliveries([build_delivery(kind, to, content, now, workload)])


def create_deliveries(new_deliveries: Iterable[Delivery]) -> int:
    """Store deliveries in the caller's transaction, and enqueue their tasks.

    Return the number of deliveries.
    """
    pks = [row.pk for row in Delivery.objects.bulk_create(new_deliveries)]
    if len(pks) == 1:
        async_task(TASK, pks[0])
    elif pks:
        async_task(ENQUEUE_TASK, pks)
    return len(pks)


def notify_about_pending_workloads(now: datetime) -> int:
    """Notify subscribers once about each workload that has been pending longer than their threshold.

    Return the number of deliveries.
    """
    count = 0
    for subscription in subscriptions_to_event("pending"):
        with transaction.atomic():
            row = lock_subscription(subscription.pk)
            if row is None:
                continue
            recipient: Recipient = (row.to, Channel(row.channel), row)
            count += create_deliveries(
                build_delivery("pending", recipient, _pending_content(workload, now), now, workload)
                for workload in _pending_workloads(row, now)[:MAX_BATCH]
            )
    return count


def lock_subscription(pk: int) -> Subscription | None:
    """Lock a subscription, so that no other task notifies the subscriber.

    Return None if another task has locked it.
    """
    # This lock does not block new rows that refer to the subscription.
    rows = Subscription.objects.select_for_update(of=("self",), skip_locked=True, no_key=True)
    return rows.select_related("user", "project", "department").filter(pk=pk).first()


def notify_about_budget(budget: Budget, percent: int, used: float, forecast: float, now: datetime) -> int:
    """Notify subscribers in the transaction that records the budget warning.

    Return the number of deliveries.
    """
    owner = budget.owner
    if isinstance(owner, Department):
        places = Q(department=owner)
    else:
        places = Q(project=owner) | Q(department=owner.department_id)
    places |= Q(user__isnull=True, project__isnull=True, department__isnull=True)
    content = {
        "event": "budget",
        "owner": owner.name,
        "percent": percent,
        "used_gpu_hours": round(used, 1),
        "forecast_gpu_hours": round(forecast, 1),
        "budget_gpu_hours": budget.gpu_hours,
        "message": f"{used:,.1f} of {budget.gpu_hours:,} GPU-hours are used this month. "
        f"The forecast for the end of the month is {forecast:,.1f}.",
        "at": now.isoformat(timespec="seconds"),
    }
    rows = list(Subscription.objects.filter(places, events__contains=["budget"]))
    for row in rows:
        create_delivery("budget", (row.to, Channel(row.channel), row), content, now)
    return len(rows)


def notify_about_schedule(schedule: Schedule, message: str, now: datetime) -> int:
    """Notify the owner and subscribers in the transaction that pauses the schedule or rejects its run.

    Return the number of deliveries.
    """
    project, owner = schedule.project, schedule.owner
    places = Q(project=project) | Q(department=project.department_id)
    places |= Q(user__isnull=True, project__isnull=True, department__isnull=True)
    content = {
        "event": "schedule", "schedule": schedule.name, "project": project.name, "message": message,
        "at": now.isoformat(timespec="seconds"),
    }  # fmt: skip
    rows = Subscription.objects.filter(places, events__contains=["schedule"]).order_by("pk")
    recipients: dict[str, Recipient] = {row.to: (row.to, Channel(row.channel), row) for row in rows}
    if owner is not None and owner.is_active and owner.email and settings.BERTH_SENDS_MAIL:
        recipients.setdefault(owner.email, (owner.email, Channel.MAIL, None))
    return create_deliveries(
        build_delivery("schedule", recipient, content, now) for recipient in recipients.values()
    )


def notify_about_pools(now: datetime) -> int:
    """Notify subscribers about failing pools every few hours, and immediately when a pool stops launching
    nodes. Return the number of deliveries.
    """
    count = 0
    failing = NodePool.objects.exclude(last_error="").order_by("name")
    for row in subscriptions_to_event("pool"):
        for pool in failing:
            stopped = pool.provisioning_stopped
            recent = Delivery.objects.filter(
                kind="pool", to=row.to, content__pool=pool.name, content__stopped=stopped,
                at__gt=now - POOL_REPEAT,
            )  # fmt: skip
            if not recent.exists():
                content = {"event": "pool", "pool": pool.name, "message": pool.last_error, "stopped": stopped,
                           "at": now.isoformat(timespec="seconds")}  # fmt: skip
                create_delivery("pool", (row.to, Channel(row.channel), row), content, now)
                count += 1
    return count


def subscriptions_to_event(event: str) -> QuerySet[Subscription]:
    return Subscription.objects.filter(events__contains=[event]).order_by("pk")


def workloads_in_scope(row: Subscription) -> QuerySet[Workload]:
    """Return the workloads that a subscription covers."""
    rows = Workload.objects.all()
    if row.user is not None:
        rows = rows.filter(submitted_by=row.user, project__in=visible_projects(Actor.for_user(row.user)))
    elif row.project is not None:
        rows = rows.filter(project=row.project)
    elif row.department is not None:
        rows = rows.filter(project__department=row.department)
    return rows


def _pending_workloads(row: Subscription, now: datetime) -> QuerySet[Workload]:
    rows = workloads_in_scope(row).filter(
        array=None, phase=Phase.PENDING, since__lte=now - timedelta(minutes=row.pending_minutes)
    )
    before = Delivery.objects.filter(
        kind="pending", workload_id=OuterRef("pk"), to=row.to, at__gte=OuterRef("since")
    )
    return rows.filter(~Exists(before)).select_related("project").order_by("since", "pk")


def _pending_content(workload: Workload, now: datetime) -> dict[str, Any]:
    return {
        "event": "pending",
        "workload": workload.name,
        "workload_id": str(workload.pk),
        "project": workload.project.name,
        "run": workload.run,
        "reason": workload.reason,
        "message": workload.message or workload.reason or "The scheduler has not evaluated the workload yet.",
        "minutes": int((now - workload.since).total_seconds() // 60),
        "at": now.isoformat(timespec="seconds"),
    }
