"""Here we tell Django about this application."""
from django.apps import AppConfig


class ProjectsConfig(AppConfig):
    name = "projects"
    label = "projects"
