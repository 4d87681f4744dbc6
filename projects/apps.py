"""Django app for tenants and workloads."""

from django.apps import AppConfig


class ProjectsConfig(AppConfig):
    name = "projects"
    label = "projects"

    def ready(self) -> None:
        from projects import receivers  # noqa: F401  (the import connects the receivers)
