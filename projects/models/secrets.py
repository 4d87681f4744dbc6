"""Models for project and user secrets, the runs that received them, and the values to mask in logs."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from pools.models.secret import Secret, SecretKind
from projects.models.tenants import Project
from projects.models.workloads import Workload


class ProjectSecret(Secret):
    """Secret that the project's pods may use.

    A project's secret overrides the pool's secret of the same name.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="secrets")

    class Meta:
        ordering = ["project", "name"]
        constraints = [
            models.UniqueConstraint(name="project_secret_once", fields=["project", "name"]),
            models.UniqueConstraint(
                name="project_registry_once", fields=["project", "registry"], condition=~Q(registry="")
            ),
            models.CheckConstraint(name="project_secret_sealed", condition=~Q(sealed="")),
        ]


class UserSecret(Secret):
    """Personal secret, which only workloads of its owner may use."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="secrets")

    class Meta:
        ordering = ["user", "name"]
        constraints = [
            models.UniqueConstraint(name="user_secret_once", fields=["user", "name"]),
            models.CheckConstraint(name="user_secret_sealed", condition=~Q(sealed="")),
            models.CheckConstraint(name="user_secret_is_a_value", condition=Q(kind=SecretKind.VALUE)),
        ]


class SecretValue(models.Model):
    """Encrypted value of a secret version that runs have received.

    It is masked in their logs, even after the secret was replaced or deleted.
    """

    class Kind(models.TextChoices):
        PROJECT = "project"
        POOL = "pool"
        USER = "user"
        PLUGIN = "plugin"

    kind = models.CharField(max_length=8, choices=Kind)
    secret = models.BigIntegerField(help_text="Primary key of the secret, which is never reused.")
    version = models.PositiveIntegerField()
    sealed = models.TextField()
    used_at = models.DateTimeField(help_text="Start of the latest run that received the value.")

    class Meta:
        constraints = [
            models.UniqueConstraint(name="secret_value_once", fields=["kind", "secret", "version"]),
            models.CheckConstraint(name="secret_value_sealed", condition=~Q(sealed="")),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.secret} {self.version}"


class SecretUse(models.Model):
    """Secret version that a run's pods received.

    The record outlives the secret, so it stores the owner and the name. Secrets of plugins belong to pools
    and are named PLUGIN.PARAMETER.
    """

    class Owner(models.TextChoices):
        PROJECT = "project"
        POOL = "pool"
        USER = "user"

    workload = models.ForeignKey(
        Workload, on_delete=models.CASCADE, related_name="secret_uses", db_index=False
    )
    run = models.PositiveIntegerField(help_text="Run number within the workload.")
    owner_kind = models.CharField(max_length=8, choices=Owner)
    owner = models.CharField(max_length=150)
    name = models.CharField(max_length=81)
    version = models.PositiveIntegerField()
    value = models.ForeignKey(SecretValue, on_delete=models.PROTECT, related_name="uses")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["owner_kind", "owner", "name", "-id"], name="uses_of_a_secret")]
        constraints = [
            # A secret that was deleted and recreated has the same name and version, but a different value.
            models.UniqueConstraint(name="secret_use_once", fields=["workload", "run", "value"])
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.version} in run {self.run}"
