"""Here is what the task queue does for projects. Each task may run twice, or be killed half way."""

from django.utils import timezone

from projects.services import deliveries


def deliver(delivery: int) -> bool:
    return deliveries.deliver(delivery, timezone.now())


def hand_out_due() -> int:
    return deliveries.hand_out_due(timezone.now())
