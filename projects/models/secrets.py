"""Model of project secrets."""

from django.db import models
from django.db.models import Q

from pools.models.secret import Secret
from projects.models.tenants import Project


class ProjectSecret(Secret):
    """Secret that the project's pods may use. It overrides the pool's secret of the same name."""

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
