"""Models for schedules, which submit a workload document at the times of a cron expression."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from projects.models.arrays import WorkloadArray
from projects.models.tenants import NAME, Project
from projects.models.workloads import Workload


class Overlap(models.TextChoices):
    """Policy for a run that is due before the previous run has ended."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class RunOutcome(models.TextChoices):
    SUBMITTED = "submitted"
    QUEUED = "queued"
    SKIPPED = "skipped"
    REJECTED = "rejected"


class Schedule(models.Model):
    """Workload document or template that is submitted for its owner when a cron expression is due."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="schedules")
    name = models.CharField(max_length=63, validators=[NAME])
    cron = models.CharField(max_length=120)
    time_zone = models.CharField(max_length=64, default="UTC")
    overlap = models.CharField(max_length=10, choices=Overlap.choices, default=Overlap.SKIP)
    text = models.TextField(
        blank=True, help_text="Workload document in YAML. Empty if the schedule uses a template."
    )
    template = models.CharField(max_length=63, blank=True, help_text="Name of a template in the project.")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+",
        help_text="User who last changed the schedule. The schedule submits with this user's permissions.",
    )  # fmt: skip
    next_at = models.DateTimeField(null=True, blank=True, help_text="Next due time. Empty while paused.")
    retry_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the retry after an internal error."
    )
    paused_at = models.DateTimeField(null=True, blank=True)
    pause_message = models.TextField(blank=True, help_text="Reason why the schedule is paused.")
    changed_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField(auto_now=True)
    version = models.BigIntegerField(editable=False)

    class Meta:
        ordering = ["project__name", "name"]
        indexes = [
            models.Index(fields=["next_at"], name="schedule_due", condition=Q(next_at__isnull=False)),
        ]
        constraints = [
            models.UniqueConstraint(name="schedule_once_per_project", fields=["project", "name"]),
            models.CheckConstraint(name="schedule_has_one_source", condition=Q(text="") ^ Q(template="")),
            models.CheckConstraint(
                name="schedule_is_paused_or_due",
                condition=Q(next_at__isnull=True, paused_at__isnull=False)
                | Q(next_at__isnull=False, paused_at__isnull=True),
            ),
        ]

    @property
    def handle(self) -> str:
        return f"{self.project.name}/{self.name}"

    def __str__(self) -> str:
        return self.handle


class ScheduleRun(models.Model):
    """Run of a schedule: its due time and its outcome. Each due time has a single row."""

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="runs")
    due_at = models.DateTimeField()
    outcome = models.CharField(max_length=10, choices=RunOutcome.choices)
    message = models.TextField(blank=True)
    started_by = models.CharField(
        max_length=150, blank=True, help_text="User who started the run manually. Empty for scheduled runs."
    )
    workload = models.ForeignKey(
        Workload, null=True, blank=True, on_delete=models.SET_NULL, related_name="schedule_runs"
    )
    array = models.ForeignKey(
        WorkloadArray, null=True, blank=True, on_delete=models.SET_NULL, related_name="schedule_runs"
    )
    decided_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-due_at", "-id"]
        indexes = [
            models.Index(fields=["schedule"], name="schedule_run_queued", condition=Q(outcome="queued")),
        ]
        constraints = [
            models.UniqueConstraint(name="schedule_run_once", fields=["schedule", "due_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} at {self.due_at:%Y-%m-%d %H:%M}"
