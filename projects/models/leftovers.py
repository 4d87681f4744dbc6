"""Model of files that deleted workloads left on machines."""

from django.db import models
from django.db.models.functions import Now


class Leftover(models.Model):
    """A pod's log, or the workspace that a workload's pods shared. The row goes when the thing is gone."""

    class Kind(models.TextChoices):
        POD = "pod"
        WORKSPACE = "workspace"

    pool = models.ForeignKey("pools.NodePool", on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    name = models.CharField(max_length=64, help_text="What the runtime of the pool knows it by.")
    left_at = models.DateTimeField(db_default=Now(), editable=False)
    handed_at = models.DateTimeField(null=True, editable=False, help_text="To the task queue, last.")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(name="leftover_once", fields=["pool", "kind", "name"]),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
