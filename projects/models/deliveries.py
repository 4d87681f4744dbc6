"""Model for notification deliveries."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from berth.core.spec.values.addresses import Channel


class Delivery(models.Model):
    """Notification to one address, stored in the same transaction as the change that it reports.

    IDs and names are copied, because deliveries outlive workloads and subscriptions. With a foreign key, a
    concurrent deletion of the subscription would make the change's transaction fail.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        DELIVERED = "delivered"
        FAILED = "failed"

    at = models.DateTimeField(db_default=Now(), editable=False)
    kind = models.CharField(
        max_length=20,
        help_text="Event: started, completed, failed, preempted, cancelled, unschedulable, pending, idle, "
        "budget, schedule, pool or test.",
    )
    workload_id = models.UUIDField(null=True)
    project_id = models.BigIntegerField(null=True)
    subscription_id = models.BigIntegerField(
        null=True, help_text="Subscription. Empty if the address is from a workload document."
    )
    to = models.TextField()
    channel = models.CharField(max_length=7, choices=[(channel, channel) for channel in Channel])
    content = models.JSONField(help_text="Content of the notification.")
    state = models.CharField(max_length=9, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(help_text="Time of the next attempt.")
    last_error = models.TextField(blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "notification deliveries"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["workload_id", "-id"], name="delivery_of_workload"),
            models.Index(fields=["subscription_id", "-id"], name="delivery_of_subscription"),
            models.Index(fields=["next_attempt_at"], name="delivery_due", condition=Q(state="pending")),
        ]
        constraints = [
            models.CheckConstraint(
                name="delivery_ended_has_a_time",
                condition=Q(state="pending", ended_at__isnull=True)
                | Q(~Q(state="pending"), ended_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} by {self.channel}: {self.state}"
