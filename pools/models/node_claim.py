"""Database model of a pool's claim to a Kubernetes node."""

from django.db import models
from django.db.models import Q

from pools.models.pool import NodePool


class NodeClaim(models.Model):
    """A pool's claim to a cluster node. It lasts from the launch request until the node's termination."""

    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="node_claims")
    node_name = models.CharField(max_length=253)
    node_uid = models.CharField(max_length=64)
    client_token = models.CharField(
        max_length=64, help_text="Token of the launch request that claimed the node."
    )
    ordinal = models.PositiveIntegerField()
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pool", "pk"]
        constraints = [
            models.UniqueConstraint(
                name="node_claimed_once", fields=["node_uid"], condition=Q(ended_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node_name}/{self.pk}"
