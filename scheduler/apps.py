"""Django app of the scheduler."""

from datetime import datetime
from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from berth.core.spec import WorkloadSpec
    from projects.actor import Actor
    from projects.models import Workload
    from projects.services.workloads.prediction import TasksPrediction


class SchedulerConfig(AppConfig):
    name = "scheduler"
    label = "scheduler"

    def ready(self) -> None:
        from berth.server.tracing import tasks  # noqa: F401  (connects the signal receivers)
        from projects.services.workloads.pending.smallest_change import register_change_finder
        from projects.services.workloads.prediction import register_predictor

        register_predictor(_predict_start)
        register_change_finder(_find_smallest_change)


def _predict_start(
    *,
    actor: "Actor",
    workload: "Workload",
    spec: "WorkloadSpec",
    now: datetime,
    others: "Sequence[str]" = (),
    edited: "Workload | None" = None,
    requeued: bool = False,
    compares: bool = False,
) -> "TasksPrediction":
    # Most processes never need the engine.
    from scheduler.reports.what_if.dry_run import predict_workloads

    return predict_workloads(
        actor=actor, workload=workload, spec=spec, now=now, others=others, edited=edited, requeued=requeued,
        compares=compares,
    )  # fmt: skip


def _find_smallest_change(workload: "Workload") -> str:
    from scheduler.reports.visibility import UNRESTRICTED
    from scheduler.reports.what_if.smallest_change import find_smallest_change

    return find_smallest_change(workload, UNRESTRICTED).sentence
