"""Predict the effect of submitting a workload, without storing it.

The scheduler can make predictions but depends on this package, so it registers its predictor here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from django.utils import timezone

from berth.core.spec import WorkloadSpec
from projects.acting import Acting
from projects.models import Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.workloads.submission import name_taken, prepared, warnings_of


@dataclass(frozen=True, slots=True)
class Prediction:
    """Outcome of the next scheduling cycle if nothing else changes.

    `outcome` is would_start, would_evict, would_wait or unschedulable. GPUs are whole devices or fractions.
    """

    outcome: str
    workload: dict[str, Any]
    decisions: list[dict[str, Any]] = field(default_factory=list)
    evictions: list[dict[str, Any]] = field(default_factory=list)
    blockers: list[dict[str, Any]] = field(default_factory=list)
    queue_position: int | None = None
    expected_start: datetime | None = None
    expected_start_reason: str = ""
    warnings: list[str] = field(default_factory=list)


class Predictor(Protocol):
    def __call__(
        self, *, acting: Acting, workload: Workload, spec: WorkloadSpec, now: datetime
    ) -> Prediction:
        """Predict the outcome of a checked but unsaved workload.

        Raises RateLimited while too many dry runs of its project are in progress.
        """
        ...


_predictors: list[Predictor] = []


def register_predictor(predictor: Predictor) -> None:
    _predictors[:] = [predictor]


def dry_run(*, acting: Acting, document: Mapping[str, Any], now: datetime | None = None) -> Prediction:
    """Return the predicted outcome of the next scheduling cycle for this document.

    Raises the errors of `submit`, and RateLimited while too many dry runs of the project are in progress.
    """
    at = now or timezone.now()
    workload, spec = _validated(acting, document, at)
    (predict,) = _predictors
    prediction = predict(acting=acting, workload=workload, spec=spec, now=at)
    return replace(prediction, warnings=warnings_of(workload, spec))


def validate(*, acting: Acting, document: Mapping[str, Any]) -> None:
    """Raise the errors of `submit`, without a prediction."""
    _validated(acting, document, timezone.now())


def _validated(acting: Acting, document: Mapping[str, Any], at: datetime) -> tuple[Workload, WorkloadSpec]:
    workload, spec = prepared(acting=acting, document=document, now=at)
    live = Workload.objects.filter(project=workload.project, name=workload.name).exclude(
        phase__in=ENDED_PHASES
    )
    if live.exists():
        raise name_taken(workload)
    return workload, spec
