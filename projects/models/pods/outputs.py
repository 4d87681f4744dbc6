"""Model for the files that pods produce: their outputs, and their changes to volumes in S3."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from projects.models.code import CodeTree
from projects.models.workloads import Pod


class OutputState(models.TextChoices):
    WAITING = "waiting"  # the pod is still running, or its files have not been read
    STORED = "stored"
    FAILED = "failed"


class PodOutputs(models.Model):
    """Files that a pod produced: its declared outputs, or its changes to one volume in S3.

    While the state is `waiting`, the files are still on the pod's node. Declared outputs are then stored in
    `tree`.
    """

    id = models.BigAutoField(primary_key=True)
    pod = models.ForeignKey(Pod, on_delete=models.CASCADE, related_name="outputs")
    paths = ArrayField(models.TextField(), default=list, help_text="Declared paths in the pod's directory.")
    volume = models.CharField(max_length=63, blank=True, help_text="Name of the changed volume.")
    source = models.CharField(max_length=32, blank=True, help_text="Digest of the volume's source.")
    state = models.CharField(max_length=8, choices=OutputState.choices, default=OutputState.WAITING)
    message = models.TextField(blank=True, help_text="Reason why the files have not been stored.")
    skipped = models.JSONField(default=dict, help_text="Reason for each omitted path.")
    tree = models.ForeignKey(
        CodeTree, null=True, on_delete=models.SET_NULL, related_name="+", help_text="Stored files."
    )
    file_count = models.PositiveIntegerField(default=0, help_text="Number of files stored in the volume.")
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes stored in the volume.")
    deleted_count = models.PositiveIntegerField(default=0, help_text="Number of deleted objects.")
    progress = models.JSONField(default=dict, help_text="Files stored by an unfinished transfer.")
    stored_at = models.DateTimeField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pod", "volume"], name="outputs_once")]
        indexes = [
            models.Index(fields=["pod"], name="outputs_waiting", condition=Q(state="waiting")),
            models.Index(
                fields=["source"], name="changes_waiting", condition=Q(state="waiting") & ~Q(source="")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pod_id} {self.volume}".strip()
