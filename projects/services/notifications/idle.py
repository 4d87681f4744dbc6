"""Notify subscribers about idle GPUs."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from berth.core.spec.values.addresses import Channel
from projects.models import Delivery, Phase, Subscription, Workload
from projects.queries.idle_gpus import idle_since
from projects.services.notifications.notify import (
    create_delivery,
    lock_subscription,
    subscriptions_to_event,
    workloads_in_scope,
)

MESSAGE = "{gpus:g} allocated GPUs have been idle (below {percent}% utilization) since {since}."


def notify_about_idle_gpus(now: datetime) -> int:
    """Notify each address once per idle period. Return the number of deliveries."""
    count = 0
    for subscription in subscriptions_to_event("idle"):
        with transaction.atomic():
            row = lock_subscription(subscription.pk)
            if row is not None:
                count += _notify(row, now)
    return count


def _notify(row: Subscription, now: datetime) -> int:
    allocated = (
        workloads_in_scope(row).filter(phase=Phase.RUNNING, gpu_milli_now__gt=0).select_related("project")
    )
    by_id = {workload.pk: workload for workload in allocated}
    idle = idle_since(by_id, now)
    earlier = Delivery.objects.filter(kind="idle", to=row.to, workload_id__in=list(idle))
    notified = {(pk, at) for pk, at in earlier.values_list("workload_id", "content__since")}
    count = 0
    for pk, since in sorted(idle.items(), key=lambda pair: (pair[1], pair[0])):
        content = _delivery_content(by_id[pk], since, now)
        if (pk, content["since"]) not in notified:
            create_delivery("idle", (row.to, Channel(row.channel), row), content, now, by_id[pk])
            count += 1
    return count


def _delivery_content(workload: Workload, since: datetime, now: datetime) -> dict[str, object]:
    gpus = workload.gpu_milli_now / 1000
    began = since.isoformat(timespec="seconds")
    return {
        "event": "idle",
        "workload": workload.name,
        "workload_id": str(workload.pk),
        "project": workload.project.name,
        "run": workload.run,
        "gpus": gpus,
        "since": began,
        "minutes": int((now - since) / timedelta(minutes=1)),
        "message": MESSAGE.format(gpus=gpus, since=began, percent=settings.BERTH_IDLE_GPU_PERCENT),
        "at": now.isoformat(timespec="seconds"),
    }
