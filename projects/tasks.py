"""Task queue jobs of projects; each may run twice or be interrupted.

Each task may run twice, or be killed half way."""

from django.utils import timezone

from projects.services.notifications import deliveries, idle, notify
from projects.services.quotas import expiry


def deliver(delivery: int) -> bool:
    return deliveries.deliver(delivery, timezone.now())


def tell() -> dict[str, int]:
    """What is news without anything having moved: long waits, GPUs that idle, failing pools."""
    now = timezone.now()
    return {
        "waiting": notify.tell_waiting(now), "idle": idle.tell_idle(now), "pools": notify.tell_pools(now),
    }  # fmt: skip


def lapse() -> int:
    """Changes of quotas whose time is over are taken back; returns how many."""
    return expiry.lapse_due(timezone.now())


def hand_out_due() -> int:
    return deliveries.hand_out_due(timezone.now())
