"""Predict the effect of submitting a workload, without storing it.

The scheduler registers its predictor here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from django.utils import timezone

from berth.core.spec import WorkloadSpec
from projects.actor import Actor
from projects.models import Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.workloads.checks.document import parse_submission
from projects.services.workloads.checks.runtimes import describe_limits
from projects.services.workloads.editing import Edit
from projects.services.workloads.submission import (
    Draft,
    collect_warnings,
    name_taken_error,
    prepare,
    require_valid_dependencies,
)
from projects.services.workloads.submission_view import SubmissionView


@dataclass(frozen=True, slots=True)
class Prediction:
    """Outcome of the next scheduling cycle if nothing else changes.

    `outcome` is would_start, would_evict, would_stay_pending or unschedulable.
    """

    outcome: str
    workload: dict[str, Any]
    decisions: list[dict[str, Any]] = field(default_factory=list)
    evictions: list[dict[str, Any]] = field(default_factory=list)
    blockers: list[dict[str, Any]] = field(default_factory=list)
    queue_position: int | None = None
    queue_position_reason: str = ""
    expected_start: datetime | None = None
    expected_start_reason: str = ""
    expected_start_after: list[dict[str, Any]] = field(default_factory=list)
    may_change_at: datetime | None = None  # time at which another workload's next backoff ends
    nodes_to_boot: int = 0  # number of nodes that must boot; 0 if the workload also needs anything else
    warnings: list[str] = field(default_factory=list)
    limits: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TasksPrediction:
    """Outcome of the next scheduling cycle for all tasks of an array if nothing else changes.

    `would_start` counts the tasks that would start without evictions, and `would_evict` counts those that
    would start with evictions. All other tasks would be queued. `blockers` says what blocks the first queued
    task. `unedited` is the outcome without the edit, if it was requested.
    """

    first_task: Prediction
    tasks: int
    would_start: int
    would_evict: int
    evictions: list[dict[str, Any]] = field(default_factory=list)
    blockers: list[dict[str, Any]] = field(default_factory=list)
    unedited: Prediction | None = None

    @property
    def would_queue(self) -> int:
        return self.tasks - self.would_start - self.would_evict


class Predictor(Protocol):
    def __call__(
        self,
        *,
        actor: Actor,
        workload: Workload,
        spec: WorkloadSpec,
        now: datetime,
        others: Sequence[str] = (),
        edited: Workload | None = None,
        requeued: bool = False,
        compares: bool = False,
    ) -> TasksPrediction:
        """Predict the outcome of an unsaved workload, and of identical workloads with the names in `others`.

        If `edited` is set, the unsaved workload replaces the stored workload `edited`, and keeps its
        submission time unless it is `requeued`. With `compares`, the outcome of a pending `edited` without
        the edit is also predicted. Raises RateLimited if too many dry runs of the project are in progress.
        """
        ...


_predictors: list[Predictor] = []


def register_predictor(predictor: Predictor) -> None:
    _predictors[:] = [predictor]


def dry_run(*, actor: Actor, document: Mapping[str, Any], now: datetime | None = None) -> Prediction:
    """Return the predicted outcome of the next scheduling cycle for the document.

    Raises the same errors as `submit`, and RateLimited if too many dry runs of the project are in progress.
    """
    at = now or timezone.now()
    view = SubmissionView(actor)
    return predict_draft(view, _prepare_and_check_name(view, document, at), at)


def predict_draft(view: SubmissionView, draft: Draft, at: datetime) -> Prediction:
    """Return the predicted outcome of the next scheduling cycle for a validated workload."""
    return predict_drafts(view, draft, (), at).first_task


def predict_drafts(
    view: SubmissionView, draft: Draft, others: Sequence[str], at: datetime
) -> TasksPrediction:
    """Return the predicted outcome for a validated workload, and for identical workloads with the names in
    `others`.
    """
    (predict,) = _predictors
    tasks = predict(actor=view.actor, workload=draft.workload, spec=draft.spec, now=at, others=others)
    (warnings,) = collect_warnings(view, [draft])
    limits = describe_limits(draft.spec, draft.workload.pools)
    return replace(tasks, first_task=replace(tasks.first_task, warnings=warnings, limits=limits))


def predict_edit(*, actor: Actor, edit: Edit, now: datetime | None = None) -> Prediction:
    """Return the predicted outcome, assuming that the edit is stored and the workload is pending.

    Raises RateLimited if too many dry runs of the project are in progress.
    """
    return _predict_edit(actor, edit, now, compares=False).first_task


def compare_edit(
    *, actor: Actor, edit: Edit, now: datetime | None = None
) -> tuple[Prediction, Prediction | None]:
    """Return the predicted outcomes with and without the edit, both in the current state of the cluster.

    The latter is None unless the workload is pending. Raises RateLimited if too many dry runs of the project
    are in progress.
    """
    tasks = _predict_edit(actor, edit, now, compares=True)
    return tasks.first_task, tasks.unedited


def _predict_edit(actor: Actor, edit: Edit, now: datetime | None, *, compares: bool) -> TasksPrediction:
    (predict,) = _predictors
    draft = edit.draft
    tasks = predict(
        actor=actor, workload=draft.workload, spec=draft.spec, now=now or timezone.now(),
        edited=edit.workload, requeued=bool(edit.increases), compares=compares,
    )  # fmt: skip
    limits = describe_limits(draft.spec, draft.workload.pools)
    return replace(tasks, first_task=replace(tasks.first_task, limits=limits))


def validate(*, actor: Actor, document: Mapping[str, Any]) -> Draft:
    """Return the workload that `submit` would store. Raises the same errors as `submit`."""
    return _prepare_and_check_name(SubmissionView(actor), document, timezone.now())


def _prepare_and_check_name(view: SubmissionView, document: Mapping[str, Any], at: datetime) -> Draft:
    draft = prepare(view, document, parse_submission(view, document, at=at), now=at)
    require_valid_dependencies(view, draft)
    workload = draft.workload
    live = Workload.objects.filter(project=workload.project, name=workload.name).exclude(
        phase__in=ENDED_PHASES
    )
    if live.exists():
        raise name_taken_error(workload)
    return draft
