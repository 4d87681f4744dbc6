"""Turn events into deliveries for subscribers."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django_q.tasks import async_task

from berth.core.spec.addresses import Channel
from pools.models import NodePool
from projects.access import visible_projects
from projects.acting import Acting
from projects.models import Budget, Delivery, Department, Phase, Subscription, Workload

TASK = "projects.tasks.deliver"
POOL_AGAIN = timedelta(hours=6)
MOST_AT_ONCE = 100

Addressed = tuple[str, Channel, Subscription | None]


def subscribers(workload: Workload, news: str) -> Iterable[Addressed]:
    """Of whoever submitted it, as long as they see it, of its project, its department, of the platform."""
    project = workload.project
    places = (
        Q(project=project.pk)
        | Q(department=project.department_id)
        | Q(user__isnull=True, project__isnull=True, department__isnull=True)
    )
    if workload.submitted_by_id is not None:
        places |= Q(user=workload.submitted_by_id)
    for row in Subscription.objects.filter(places, news__contains=[news]).select_related("user"):
        if row.user is None or _sees(row, workload):
            yield row.to, Channel(row.channel), row


def owner_addresses(workload: Workload) -> Iterable[str]:
    """Yield the mail address of the person who submitted the workload, as long as they see it."""
    owner = workload.submitted_by
    if owner is None or not owner.is_active or not owner.email:
        return
    if visible_projects(Acting.person(owner)).filter(pk=workload.project_id).exists():
        yield owner.email


def write(
    kind: str, to: Addressed, content: dict[str, Any], now: datetime, workload: Workload | None = None
) -> Delivery:
    """In the caller's transaction; the task queue carries it out."""
    address, channel, subscription = to
    row = Delivery.objects.create(
        kind=kind,
        workload_id=workload.pk if workload else None,
        project_id=workload.project_id if workload else None,
        subscription=subscription,
        to=address,
        channel=channel,
        content=content,
        due_at=now,
    )
    async_task(TASK, row.pk)
    return row


def tell_waiting(now: datetime) -> int:
    """Of work that waits longer than somebody wants to wait without being told; each wait once."""
    told = 0
    for subscription in wanting("waiting"):
        with transaction.atomic():
            locked = Subscription.objects.select_for_update(of=("self",), skip_locked=True)
            row = locked.select_related("user", "project", "department").filter(pk=subscription.pk).first()
            if row is None:
                continue
            for workload in _waiting(row, now)[:MOST_AT_ONCE]:
                content = _of_waiting(workload, now)
                write("waiting", (row.to, Channel(row.channel), row), content, now, workload)
                told += 1
    return told


def tell_budget(budget: Budget, percent: int, used: float, forecast: float, now: datetime) -> int:
    """In the transaction that writes down that so much is used."""
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
        "message": f"{used:,.1f} of {budget.gpu_hours:,} GPU-hours of this month are used; "
        f"at the present pace it will be {forecast:,.1f} by its end.",
        "at": now.isoformat(timespec="seconds"),
    }
    rows = list(Subscription.objects.filter(places, news__contains=["budget"]))
    for row in rows:
        write("budget", (row.to, Channel(row.channel), row), content, now)
    return len(rows)


def tell_pools(now: datetime) -> int:
    """Report failing pools, again after some hours, and at once when one stops ordering nodes."""
    told = 0
    failing = NodePool.objects.exclude(last_error="").order_by("name")
    for row in wanting("pool"):
        for pool in failing:
            stopped = pool.provisioning_stopped
            lately = Delivery.objects.filter(
                kind="pool", to=row.to, content__pool=pool.name, content__stopped=stopped,
                at__gt=now - POOL_AGAIN,
            )  # fmt: skip
            if not lately.exists():
                content = {"event": "pool", "pool": pool.name, "message": pool.last_error, "stopped": stopped,
                           "at": now.isoformat(timespec="seconds")}  # fmt: skip
                write("pool", (row.to, Channel(row.channel), row), content, now)
                told += 1
    return told


def wanting(news: str) -> QuerySet[Subscription]:
    return Subscription.objects.filter(news__contains=[news]).order_by("pk")


def of_its_place(row: Subscription) -> QuerySet[Workload]:
    """The work that a subscription tells of."""
    rows = Workload.objects.all()
    if row.user is not None:
        rows = rows.filter(submitted_by=row.user, project__in=visible_projects(Acting.person(row.user)))
    elif row.project is not None:
        rows = rows.filter(project=row.project)
    elif row.department is not None:
        rows = rows.filter(project__department=row.department)
    return rows


def _waiting(row: Subscription, now: datetime) -> QuerySet[Workload]:
    rows = of_its_place(row).filter(
        phase=Phase.PENDING, since__lte=now - timedelta(minutes=row.waiting_minutes)
    )
    before = Delivery.objects.filter(
        kind="waiting", workload_id=OuterRef("pk"), to=row.to, at__gte=OuterRef("since")
    )
    return rows.filter(~Exists(before)).select_related("project").order_by("since", "pk")


def _of_waiting(workload: Workload, now: datetime) -> dict[str, Any]:
    return {
        "event": "waiting",
        "workload": workload.name,
        "workload_id": str(workload.pk),
        "project": workload.project.name,
        "run": workload.run,
        "reason": workload.reason,
        "message": workload.message or workload.reason or "The scheduler has not looked at it yet.",
        "minutes": int((now - workload.since).total_seconds() // 60),
        "at": now.isoformat(timespec="seconds"),
    }


def _sees(row: Subscription, workload: Workload) -> bool:
    assert row.user is not None, "asked of people's own only"
    return visible_projects(Acting.person(row.user)).filter(pk=workload.project_id).exists()
