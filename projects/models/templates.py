"""Model for project templates."""

from django.conf import settings
from django.db import models

from projects.models.tenants import NAME, Project


class Template(models.Model):
    """Named workload document, stored with its comments and formatting."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="templates")
    name = models.CharField(max_length=63, validators=[NAME])
    description = models.CharField(max_length=200, blank=True)
    text = models.TextField(help_text="Workload document in YAML for this project. Its `name` is optional.")
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    changed_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField(auto_now=True)
    version = models.BigIntegerField(editable=False)

    class Meta:
        ordering = ["project__name", "name"]
        constraints = [models.UniqueConstraint(name="template_once_per_project", fields=["project", "name"])]

    @property
    def handle(self) -> str:
        return f"{self.project.name}/{self.name}"

    def __str__(self) -> str:
        return self.handle
