"""Django app of the scheduler."""

from datetime import datetime
from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from berth.core.spec import WorkloadSpec
    from projects.acting import Acting
    from projects.models import Workload
    from projects.services.workloads.prediction import Prediction


class SchedulerConfig(AppConfig):
    name = "scheduler"
    label = "scheduler"

    def ready(self) -> None:
        from berth.server.tracing import tasks  # noqa: F401  (connects its receivers)
        from projects.services.workloads.prediction import register_predictor

        register_predictor(_predict)


def _predict(*, acting: "Acting", workload: "Workload", spec: "WorkloadSpec", now: datetime) -> "Prediction":
    """Import the engine on the first prediction, because most processes never make one."""
    from scheduler.reports.what_if.dry_run import predict

    return predict(acting=acting, workload=workload, spec=spec, now=now)
