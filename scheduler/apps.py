"""Django app of the scheduler."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    name = "scheduler"
    label = "scheduler"

    def ready(self) -> None:
        from berth.server.tracing import tasks  # noqa: F401  (connects its receivers)
