"""Database model of scaling events, which are immutable."""

from django.db import models

from pools.models.node import Node
from pools.models.pool import NodePool


class ScalingKind(models.TextChoices):
    AUTOSCALE = "autoscale"  # the autoscaler or a user changed the desired number of nodes
    PROVISION = "provision"  # the provider returned instances
    SURPLUS = "surplus"  # the provider returned more instances than are still desired
    ADOPTED = "adopted"  # the instance exists, although the response to its launch request was lost
    JOINED = "joined"  # the machine has called the join endpoint
    READY = "ready"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    DRAIN_ABORTED = "drain_aborted"
    TERMINATE = "terminate"
    INTERRUPTION = "interruption"  # the provider will reclaim the machine
    LOST = "lost"
    ORPHAN = "orphan"  # an instance with Berth's tags but without a node was terminated
    BOOT_FAILED = "boot_failed"  # a node was lost before it became ready
    RETRIED = "retried"  # the number of failed boots was reset, so nodes are requested again immediately
    ERROR = "error"
    PAUSED = "paused"
    RESUMED = "resumed"


class ScalingEvent(models.Model):
    """Event in a pool's scaling history. A database trigger rejects updates and deletes."""

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
        verbose_name_plural = "pool scaling"
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["pool", "-at"], name="scaling_pool_at")]
        constraints = [
            models.CheckConstraint(
                name="scaling_kind_known", condition=models.Q(kind__in=ScalingKind.values)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pool_id} {self.kind}: {self.reason}"
