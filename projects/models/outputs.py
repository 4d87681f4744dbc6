"""Model of the outputs of pods."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from projects.models.code import CodeTree
from projects.models.workloads import Pod


class OutputState(models.TextChoices):
    WAITING = "waiting"  # until the pod has ended and its files were read
    STORED = "stored"
    FAILED = "failed"


class PodOutputs(models.Model):
    """Output files of a pod. The pod's node stores them while the state is `waiting`."""

    pod = models.OneToOneField(Pod, primary_key=True, on_delete=models.CASCADE, related_name="outputs")
    paths = ArrayField(models.TextField(), help_text="Paths in the pod's directory.")
    state = models.CharField(max_length=8, choices=OutputState.choices, default=OutputState.WAITING)
    message = models.TextField(blank=True, help_text="Reason why files are not stored, or not stored yet.")
    skipped = models.JSONField(default=dict, help_text="Reason for each path that was left out.")
    tree = models.ForeignKey(
        CodeTree, null=True, on_delete=models.SET_NULL, related_name="+", help_text="Stored files."
    )
    stored_at = models.DateTimeField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["pod"], name="outputs_waiting", condition=Q(state="waiting"))]

    def __str__(self) -> str:
        return str(self.pod_id)
