"""Database models of encrypted secrets."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from pools.models.pool import NodePool

NAME = RegexValidator(
    r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
)


class SecretKind(models.TextChoices):
    VALUE = "value"  # text that pods receive
    REGISTRY = "registry"  # credentials for a container image registry
    SSH_KEY = "ssh_key", "SSH key"  # private key that Berth uses to log in to hosts
    S3_KEY = "s3_key", "S3 key"  # access key that Berth uses to read and write volumes in S3


class Secret(models.Model):
    """Base class of secrets.

    `sealed` is the encrypted value or password. `registry` is a host with an optional port and path.
    `username` is the registry's username, or the ID of an S3 access key. Both are empty for other kinds of
    secrets. `version` is incremented with each new content.
    """

    name = models.CharField(max_length=63, validators=[NAME])
    kind = models.CharField(max_length=16, choices=SecretKind, default=SecretKind.VALUE)
    registry = models.CharField(max_length=255, blank=True, default="")
    username = models.CharField(max_length=255, blank=True, default="")
    sealed = models.TextField()
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=150)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


class PoolSecret(Secret):
    """A pool's secret, which pods of all projects in the pool may use."""

    pool = models.ForeignKey(NodePool, on_delete=models.CASCADE, related_name="secrets")

    class Meta:
        ordering = ["pool", "name"]
        constraints = [
            models.UniqueConstraint(name="pool_secret_once", fields=["pool", "name"]),
            models.UniqueConstraint(
                name="pool_registry_once", fields=["pool", "registry"], condition=~Q(registry="")
            ),
            models.CheckConstraint(name="pool_secret_sealed", condition=~Q(sealed="")),
        ]
