"""Model of open channels to pods."""

from django.conf import settings
from django.db import models

from projects.models.workloads import Pod


class OpenChannel(models.Model):
    """Open channel of a user. The row is deleted when the audit log records the end of the channel."""

    pod = models.ForeignKey(Pod, on_delete=models.CASCADE, related_name="channels")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    noun = models.CharField(max_length=20, help_text="Kind of channel in the audit log, for example shell.")
    details = models.JSONField(help_text="Details in the audit log.")
    opened_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="Time at which a web process last recorded that it is open.")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.noun} in {self.pod_id}"
