"""Append-only models for events, audit entries and quota changes.

IDs and names are copied, because history outlives its objects.
"""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Event(models.Model):
    """Event of a workload, pod, node or queue."""

    at = models.DateTimeField(db_default=Now(), editable=False)
    kind = models.CharField(max_length=40)
    project_id = models.BigIntegerField(null=True)
    workload_id = models.UUIDField(null=True)
    subject = models.CharField(max_length=200, help_text="Name of the object at that time.")
    message = models.TextField()
    data = models.JSONField(default=dict)
    actor = models.CharField(max_length=150, help_text="Username, or the Berth component that acted.")

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["workload_id", "id"], name="event_of_workload"),
            models.Index(fields=["project_id", "-id"], name="event_of_project"),
            BrinIndex(fields=["at"], name="event_time"),
        ]

    def __str__(self) -> str:
        return f"{self.subject}: {self.kind.replace('_', ' ')}"


class Audit(models.Model):
    """Audit entry for a change by a user or a component, with the values before and after."""

    at = models.DateTimeField(db_default=Now(), editable=False)
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=60)
    object_type = models.CharField(max_length=40)
    object_id = models.CharField(max_length=60)
    object_name = models.CharField(max_length=200)
    department_id = models.BigIntegerField(null=True)
    project_id = models.BigIntegerField(null=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    request_id = models.CharField(max_length=64, blank=True)
    change_id = models.BigIntegerField(null=True, help_text="Quota change that this entry belongs to.")

    class Meta:
        verbose_name = "audit entry"
        verbose_name_plural = "audit entries"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["change_id"], name="audit_of_change", condition=Q(change_id__isnull=False)),
            models.Index(fields=["object_type", "object_id", "-id"], name="audit_of_object"),
            models.Index(fields=["project_id", "-id"], name="audit_of_project"),
            BrinIndex(fields=["at"], name="audit_time"),
        ]

    def __str__(self) -> str:
        return f"Entry {self.pk}"


class QuotaChange(models.Model):
    """Change that sets or removes one or more quotas. Each quota also has an audit entry."""

    at = models.DateTimeField(db_default=Now(), editable=False)
    actor = models.CharField(max_length=150)
    comment = models.CharField(max_length=500, blank=True, help_text="Reason for the change.")
    reverts = models.BigIntegerField(null=True, help_text="Change that this change reverts.")
    written = models.JSONField(
        help_text="Full values of each changed quota, before and after, in document units."
    )

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["reverts"], name="change_reverted_by", condition=Q(reverts__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"Change {self.pk}"


class QuotaExpiry(models.Model):
    """Expiry of a temporary quota change, and the outcome once it has expired."""

    change = models.OneToOneField(QuotaChange, on_delete=models.CASCADE, related_name="expiry")
    due_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    outcome = models.TextField(
        blank=True, help_text="Quotas that were not reverted, because they have been edited since the change."
    )

    class Meta:
        ordering = ["due_at", "id"]
        indexes = [models.Index(fields=["due_at"], name="quota_expiry_due", condition=Q(done_at=None))]

    def __str__(self) -> str:
        return f"change {self.change_id} expires {self.due_at:%Y-%m-%d %H:%M}"
