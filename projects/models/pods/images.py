"""Model for the container image of each run."""

from django.db import models
from django.db.models import Q

from projects.models.workloads import Workload


class RunImage(models.Model):
    """Container image of one run, pinned to a digest once the registry has resolved the tag.

    All pods of the run use this digest.
    """

    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="images", db_index=False)
    run = models.PositiveIntegerField(help_text="Run number within the workload.")
    image = models.CharField(max_length=512, help_text="Image reference as written in the document.")
    digest = models.CharField(
        max_length=71, blank=True, help_text="Digest of the image. Empty until the tag is resolved."
    )
    resolved_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(
        default=0, help_text="Number of failed attempts to resolve the tag."
    )
    retry_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True, help_text="Error of the last failed attempt.")

    class Meta:
        ordering = ["workload", "run"]
        constraints = [
            models.UniqueConstraint(name="image_once_per_run", fields=["workload", "run"]),
            models.CheckConstraint(
                name="image_resolved_has_a_time", condition=Q(digest="") | Q(resolved_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.image
