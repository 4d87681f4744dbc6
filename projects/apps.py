"""Django app of tenants and workloads."""

from django.apps import AppConfig


class ProjectsConfig(AppConfig):
    name = "projects"
    label = "projects"

    def ready(self) -> None:
        from projects import pool_changes, signing_out  # noqa: F401  (connect their receivers)
