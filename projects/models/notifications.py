"""Models for notification subscriptions and their deliveries."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from berth.core.spec.values.addresses import Channel
from berth.db.queries.fast_rows import FastRows
from projects.models.tenants import Department, Project

WORKLOAD_EVENTS = (
    "started",
    "completed",
    "failed",
    "preempted",
    "cancelled",
    "unschedulable",
    "pending",
    "idle",
)
EVENTS = (*WORKLOAD_EVENTS, "budget", "schedule", "pool")
MAX_PENDING_MINUTES = 60 * 24 * 30


class Subscription(FastRows):
    """Address that is notified about a user's workloads, a project, a department or the platform."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+",
        help_text="User whose workloads the subscription covers.",
    )  # fmt: skip
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="+")
    department = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="+")
    events = ArrayField(models.CharField(max_length=20))
    pending_minutes = models.PositiveIntegerField(
        default=60,
        help_text="Pending time in minutes after which a notification is sent.",
    )
    to = models.TextField()
    channel = models.CharField(max_length=7, choices=[(channel, channel) for channel in Channel])
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                name="subscription_once_per_place_and_address",
                fields=["user", "project", "department", "to"],
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                name="subscription_has_one_place_at_most",
                condition=Q(user__isnull=True, project__isnull=True)
                | Q(user__isnull=True, department__isnull=True)
                | Q(project__isnull=True, department__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope_name} to {self.channel}"

    @property
    def scope_name(self) -> str:
        """Return the scope's name, such as a project's name, or a phrase such as "workloads submitted by
        bert".
        """
        if self.user is not None:
            return f"workloads submitted by {self.user.get_username()}"
        owner = self.project or self.department
        return "the platform" if owner is None else owner.name


class Delivery(models.Model):
    """Notification to one address, stored in the transaction of the change that it reports.

    IDs and names are copied, because deliveries outlive workloads and subscriptions.
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
    # With a foreign key, a concurrent deletion of the subscription would make the transaction fail.
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
