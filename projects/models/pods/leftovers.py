"""Model for files that remain on nodes after their pods and workloads are deleted."""

from django.db import models
from django.db.models.functions import Now


class Leftover(models.Model):
    """Pod log or workload workspace that must still be deleted from a node. The row is deleted afterwards."""

    class Kind(models.TextChoices):
        POD = "pod"
        WORKSPACE = "workspace"

    pool = models.ForeignKey("pools.NodePool", on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    name = models.CharField(max_length=64, help_text="Name in the pool's runtime.")
    left_at = models.DateTimeField(db_default=Now(), editable=False)
    handed_at = models.DateTimeField(
        null=True, editable=False, help_text="Time of the last request for cleanup."
    )

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(name="leftover_once", fields=["pool", "kind", "name"]),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
