"""Model of temporary quota changes."""

from django.db import models

from projects.models.history import QuotaChange


class Lapse(models.Model):
    """When a change of quotas is taken back, and once it was, what came of it."""

    change = models.OneToOneField(QuotaChange, on_delete=models.CASCADE, related_name="lapse")
    due_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    outcome = models.TextField(blank=True, help_text="What was left as somebody had set it since.")

    class Meta:
        ordering = ["due_at", "id"]
        indexes = [models.Index(fields=["due_at"], name="lapse_due", condition=models.Q(done_at=None))]

    def __str__(self) -> str:
        return f"change {self.change_id} lapses {self.due_at:%Y-%m-%d %H:%M}"
