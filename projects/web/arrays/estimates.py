"""Estimate how long the remaining tasks of an array will take."""

from dataclasses import dataclass

from django.db.models import Avg, F
from django.db.models.functions import Extract

from projects.models import ArrayState, Phase, Workload, WorkloadArray
from projects.web.arrays.progress import ArrayProgress


@dataclass(frozen=True, slots=True)
class RuntimeEstimate:
    """Mean runtime of completed tasks, and an estimate for the remaining tasks, in seconds.

    `remaining` assumes that `at_once` tasks are running at all times. It is None if no task remains, or if
    it cannot be estimated.
    """

    mean: float
    remaining: float | None
    at_once: int
    is_running: bool


def estimate_runtime(array: WorkloadArray, progress: ArrayProgress) -> RuntimeEstimate | None:
    """Return an estimate from the last runs of completed tasks, or None if no task has completed.

    It assumes that the number of running tasks stays the same.
    """
    completed = Workload.objects.filter(
        array=array, superseded=False, phase=Phase.COMPLETED, started_at__isnull=False
    )
    run = Extract(F("ended_at") - F("started_at"), "epoch")
    mean = completed.order_by().aggregate(mean=Avg(run))["mean"] if progress.counts.completed else None
    if mean is None:
        return None
    waiting = progress.pending - progress.unschedulable
    left = waiting + progress.running / 2
    at_once = min(progress.running or array.max_running or 0, waiting + progress.running)
    is_known = array.state == ArrayState.ACTIVE and bool(left and at_once)
    remaining = mean * max(left / at_once, 1 if waiting else 0.5) if is_known else None
    return RuntimeEstimate(mean, remaining, at_once, progress.running > 0)
