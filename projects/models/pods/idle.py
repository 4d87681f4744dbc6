"""Model for warnings about idle GPUs."""

from django.db import models

from projects.models.workloads import Workload


class IdleWarning(models.Model):
    """Warning from an idle rule.

    The row is deleted when the warning no longer applies or the workload is suspended.
    """

    workload = models.OneToOneField(
        Workload, primary_key=True, on_delete=models.CASCADE, related_name="idle_warning"
    )
    run = models.PositiveIntegerField()
    since = models.DateTimeField(help_text="Start of the period in which all GPUs have been idle.")
    at = models.DateTimeField(help_text="Time of the warning.")
    suspend_at = models.DateTimeField(
        null=True, help_text="Time of the planned suspension. Empty if the rule only warns."
    )
    rule = models.JSONField(help_text="Rule at the time of the warning.")
    message = models.TextField()

    def __str__(self) -> str:
        return self.message
