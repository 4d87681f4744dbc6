"""Database model of SSH hosts."""

from django.db import models

from pools.models.machine import Machine
from pools.models.pool import NodePool


class SshHost(models.Model):
    """Host that Berth reaches over SSH for one pool.

    The row exists until the host is removed from the settings and its agent is uninstalled.
    """

    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="ssh_hosts")
    name = models.CharField(max_length=63)
    address = models.CharField(max_length=253)
    port = models.PositiveIntegerField()
    through = models.CharField(max_length=253, blank=True, default="", help_text="Address of the bastion.")
    settings = models.JSONField(help_text="All settings of the host, including the pool's defaults.")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, null=True, related_name="ssh_hosts")
    join_version = models.PositiveIntegerField(
        default=1, help_text="Incremented with each installation, which revokes the previous join token."
    )
    applied = models.CharField(
        max_length=64, blank=True, default="", help_text="Digest of the installed settings."
    )
    touched_at = models.DateTimeField(null=True, help_text="Time at which the first installation started.")
    removed_at = models.DateTimeField(null=True)

    # The result of the last connection.
    connected_at = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0, help_text="Consecutive failed connections.")
    retry_at = models.DateTimeField(null=True)
    problem = models.CharField(max_length=16, blank=True, default="")
    message = models.TextField(blank=True, default="")
    presented_key = models.TextField(
        blank=True, default="", help_text="Host key that no admin has accepted yet."
    )
    facts = models.JSONField(default=dict, help_text="Properties of the host, as last detected.")

    class Meta:
        ordering = ["pool__name", "name", "pk"]
        constraints = [
            models.UniqueConstraint(name="ssh_host_name_once", fields=["pool", "name"]),
            models.UniqueConstraint(name="ssh_host_listed_once", fields=["address", "port", "through"]),
        ]

    def __str__(self) -> str:
        return self.name
