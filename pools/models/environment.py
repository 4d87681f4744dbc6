"""Database models of environments and plugin secrets."""

from django.db import models
from django.db.models import Q

from pools.models.pool import NodePool


class Environment(models.Model):
    """Immutable environment, identified by the digest of its content.

    Nodes run its script, which contains no secret.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    image = models.JSONField(help_text="Packages, variables and secret names.")
    script = models.TextField(help_text="Script that installs the environment on a node.")
    phases = models.JSONField(help_text="Names of the script's phases, in order.")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-created_at", "digest"]

    def __str__(self) -> str:
        return self.digest[:12]


class PluginSecret(models.Model):
    """A plugin's encrypted secret, which processes receive in the environment variable `variable`."""

    pool = models.ForeignKey(NodePool, on_delete=models.CASCADE, related_name="plugin_secrets")
    plugin = models.CharField(max_length=40)
    parameter = models.CharField(max_length=40)
    variable = models.CharField(max_length=255)
    sealed = models.TextField()
    version = models.PositiveIntegerField(default=1)
    set_at = models.DateTimeField()

    class Meta:
        ordering = ["pool", "plugin", "parameter"]
        constraints = [
            models.UniqueConstraint(name="plugin_secret_once", fields=["pool", "plugin", "parameter"]),
            models.CheckConstraint(name="plugin_secret_sealed", condition=~Q(sealed="")),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.pool_id}"

    @property
    def name(self) -> str:
        """Name of the secret in its pool: PLUGIN.PARAMETER. Names of other secrets contain no dot."""
        return f"{self.plugin}.{self.parameter}"
