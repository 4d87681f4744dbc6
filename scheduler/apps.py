"""Django app of the scheduler."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    name = "scheduler"
    label = "scheduler"

    def ready(self) -> None:
        from berth.server.tracing import tasks  # noqa: F401  (connects its receivers)
        from projects.services.workloads.prediction import register_predictor
        from scheduler.reports.what_if.dry_run import predict

        register_predictor(predict)
