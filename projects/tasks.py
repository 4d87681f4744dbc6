"""Task queue jobs of the projects app. Each job is idempotent and safe to interrupt."""

from django.utils import timezone

from projects.services.notifications import deliveries, idle, notify
from projects.services.quotas import expiry


def deliver(delivery: int) -> bool:
    return deliveries.deliver(delivery, timezone.now())


def enqueue_deliveries(pks: list[int]) -> None:
    deliveries.enqueue_delivery_tasks(pks)


def notify_conditions() -> dict[str, int]:
    """Notify subscribers about long pending times, idle GPUs and failing pools.

    Return the number of deliveries of each kind.
    """
    now = timezone.now()
    return {
        "pending": notify.notify_about_pending_workloads(now),
        "idle": idle.notify_about_idle_gpus(now),
        "pools": notify.notify_about_pools(now),
    }


def revert_expired_quota_changes() -> int:
    return expiry.revert_expired_changes(timezone.now())


def enqueue_due_deliveries() -> int:
    return deliveries.enqueue_due_retries(timezone.now())
