"""Model for open channels to pods."""

from django.db import models

from projects.models.tenants import Project


class OpenChannel(models.Model):
    """A user's open channel.

    The row is deleted when the audit log records the channel's end. There are no foreign keys to the user and
    workload, because they may be deleted first.
    """

    actor = models.CharField(max_length=150, help_text="User name to record in the audit log.")
    request_id = models.CharField(max_length=64, blank=True)
    workload = models.UUIDField(help_text="ID of the workload.")
    workload_name = models.CharField(max_length=200)
    project = models.ForeignKey(Project, null=True, on_delete=models.SET_NULL, related_name="+")
    noun = models.CharField(max_length=20, help_text="Channel kind in the audit log, for example shell.")
    details = models.JSONField(help_text="Details for the audit log.")
    opened_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="Time at which the channel was last recorded as open.")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.noun} in {self.workload_name}"
