"""Model for arrays of workloads."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from berth.core.values.priorities import DEFAULT
from berth.db.queries.fast_rows import FastRows
from projects.models.tenants import NAME, Project

PENDING_MAX = 100  # maximum number of released tasks of an array that are pending at the same time
WAITING_REASON = "WaitingForEarlierTasks"  # pending reason of held tasks
WAITING_MESSAGE = "Waiting for earlier tasks of the array."
STOP_RULE_REASON = "StopRule"  # reason for tasks that the array's stop rule cancelled


class ArrayState(models.TextChoices):
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WorkloadArray(FastRows):
    """Array of workloads (tasks) that share one document.

    An array is active until all of its tasks have ended. Its final state is failed if any task failed, else
    cancelled if any task was cancelled, else completed. Tasks that the stop rule cancelled do not count.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="arrays")
    name = models.CharField(max_length=63, validators=[NAME])
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    spec = models.JSONField()
    priority = models.IntegerField(default=DEFAULT)
    gpu_milli_min = models.BigIntegerField(
        default=0, help_text="Milli-GPUs requested by one task's minimum gang."
    )
    task_count = models.PositiveIntegerField(help_text="Number of tasks.")
    max_running = models.PositiveIntegerField(
        null=True, blank=True, help_text="Maximum number of tasks that use resources at the same time."
    )
    state = models.CharField(max_length=10, choices=ArrayState.choices, default=ArrayState.ACTIVE)
    submitted_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)
    unschedulable_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which a task was reported as unschedulable."
    )

    class Meta:
        ordering = ["-submitted_at", "-id"]
        indexes = [
            models.Index(fields=["-submitted_at", "-id"], name="array_newest"),
            models.Index(fields=["project", "-submitted_at"], name="array_project_newest"),
            models.Index(fields=["id"], name="array_active", condition=Q(state="active")),
        ]
        constraints = [
            models.UniqueConstraint(
                name="array_name_once_while_active",
                fields=["project", "name"],
                condition=Q(state="active"),
            ),
            models.CheckConstraint(
                name="array_ended_has_a_time",
                condition=Q(state="active", ended_at__isnull=True)
                | ~Q(state="active") & Q(ended_at__isnull=False),
            ),
        ]

    @property
    def handle(self) -> str:
        """Return PROJECT/NAME, which is unique among active arrays."""
        return f"{self.project.name}/{self.name}"

    def __str__(self) -> str:
        return self.name
