"""Model of scaling events, append-only."""

from django.db import models

from pools.models.node import Node
from pools.models.pool import NodePool


class ScalingKind(models.TextChoices):
    AUTOSCALE = "autoscale"  # the autoscaler, or a person, wants another number of nodes
    PROVISION = "provision"  # the provider answered with instances
    SURPLUS = "surplus"  # ... with more than still wanted
    ADOPTED = "adopted"  # an instance of a call whose answer was lost
    JOINED = "joined"  # the machine itself called in
    READY = "ready"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    DRAIN_ABORTED = "drain_aborted"
    TERMINATE = "terminate"
    INTERRUPTION = "interruption"  # the provider takes the machine back
    LOST = "lost"
    ORPHAN = "orphan"  # carries our tags, has no row: ended
    BOOT_FAILED = "boot_failed"  # nodes of an order were lost before they were ready
    RETRIED = "retried"  # failed boots are forgotten: nodes are ordered again at once
    ERROR = "error"
    PAUSED = "paused"
    RESUMED = "resumed"


class ScalingEvent(models.Model):
    """Append-only: a trigger refuses every update and delete."""

    Kind = ScalingKind

    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="scaling_events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=16, choices=ScalingKind)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, null=True, related_name="scaling_events")
    before = models.PositiveIntegerField(null=True)
    after = models.PositiveIntegerField(null=True)
    reason = models.TextField()
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["pool", "-at"], name="scaling_pool_at")]
        constraints = [
            models.CheckConstraint(
                name="scaling_kind_known", condition=models.Q(kind__in=ScalingKind.values)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pool_id} {self.kind}: {self.reason}"
