"""Here we tell Django about this application."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    name = "scheduler"
    label = "scheduler"
