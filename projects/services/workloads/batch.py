"""Submit many workloads in one transaction with a constant number of SQL queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from berth.core.errors import BerthError, Invalid
from berth.core.problems import Problem
from berth.core.spec import SpecError, WorkloadSpec, parse_workload
from berth.core.spec.values.texts import NAME
from projects.actor import Actor
from projects.models import Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.dependencies import dependency_problems
from projects.services.workloads.checks.document import with_problems_of_valid_part
from projects.services.workloads.submission import (
    Draft,
    Submission,
    collect_warnings,
    name_taken_error,
    prepare,
    store_drafts,
)
from projects.services.workloads.submission_view import SubmissionView

DOCUMENTS_MAX = 1000


@dataclass(frozen=True, slots=True)
class BatchItem:
    """Outcome of one document: a submission or an error.

    In a dry run, an accepted document has only warnings.
    """

    submission: Submission | None = None
    error: BerthError | None = None
    warnings: Sequence[str] = ()


def submit_batch(
    *, actor: Actor, documents: Sequence[Any], atomic: bool, now: datetime | None = None
) -> list[BatchItem]:
    """Submit the documents in one transaction, and return one item per document.

    With `atomic`, a single invalid document rejects the whole batch: Invalid is raised with the problems of
    all documents.
    """
    with transaction.atomic():
        view = SubmissionView(actor, locks=True)
        drafts = _prepare_drafts(view, documents, now or timezone.now())
        _reject_atomic_batch(atomic, drafts)
        accepted = [draft for draft in drafts if isinstance(draft, Draft)]
        stored = iter(store_drafts(view, accepted))
        items = [
            BatchItem(error=draft) if isinstance(draft, BerthError) else _to_item(draft, next(stored))
            for draft in drafts
        ]
        _reject_atomic_batch(atomic, [item.error for item in items])
    return items


def check_batch(
    *, actor: Actor, documents: Sequence[Any], atomic: bool, now: datetime | None = None
) -> list[BatchItem]:
    """Check the documents like `submit_batch`, without storing workloads."""
    view = SubmissionView(actor)
    drafts = _reject_duplicate_names(_prepare_drafts(view, documents, now or timezone.now()))
    _reject_atomic_batch(atomic, drafts)
    warnings = iter(collect_warnings(view, [draft for draft in drafts if isinstance(draft, Draft)]))
    return [
        BatchItem(error=draft) if isinstance(draft, BerthError) else BatchItem(warnings=next(warnings))
        for draft in drafts
    ]


def item_problems(index: int, error: BerthError) -> list[Problem]:
    """Return the problems in one document, with paths such as `items[3].roles[0].replicas`."""
    if isinstance(error, Invalid):
        problems = list(error.problems)
    else:
        problems = [Problem(**problem) for problem in error.extra.get("errors", ())]
    return [
        replace(problem, path=f"items[{index}].{problem.path}" if problem.path else f"items[{index}]")
        for problem in problems or [Problem("project", error.detail)]
    ]


def _prepare_drafts(view: SubmissionView, documents: Sequence[Any], at: datetime) -> list[Draft | BerthError]:
    """Return a draft for each valid document, and an error for each invalid one."""
    specs = [_parse_item(document) for document in documents]
    view.load_projects(filter(None, map(_project_name, documents)))
    drafts = [
        with_problems_of_valid_part(view, document, spec, None, at)
        if isinstance(spec, SpecError)
        else _prepare_or_reject(view, document, spec, at)
        for document, spec in zip(documents, specs, strict=True)
    ]
    return _reject_invalid_dependencies(view, drafts)


def _project_name(document: object) -> str:
    """Return the project's name in a document, or "" if it has no valid one."""
    name = document.get("project") if isinstance(document, Mapping) else None
    return name if isinstance(name, str) and NAME.fullmatch(name) else ""


def _parse_item(document: object) -> WorkloadSpec | SpecError:
    try:
        return parse_workload(document)
    except SpecError as error:
        return error


def _prepare_or_reject(
    view: SubmissionView, document: Mapping[str, Any], spec: WorkloadSpec, at: datetime
) -> Draft | BerthError:
    try:
        return prepare(view, document, spec, now=at)
    except BerthError as error:
        return error


def _reject_invalid_dependencies(
    view: SubmissionView, drafts: Sequence[Draft | BerthError]
) -> list[Draft | BerthError]:
    valid = [draft for draft in drafts if isinstance(draft, Draft)]
    problems = iter(dependency_problems(view, [(draft.workload.project, draft.spec) for draft in valid]))
    checked: list[Draft | BerthError] = []
    for draft in drafts:
        invalid = next(problems) if isinstance(draft, Draft) else []
        checked.append(Invalid(invalid) if invalid else draft)
    return checked


def _to_item(draft: Draft, submission: Submission | None) -> BatchItem:
    if submission is None:
        return BatchItem(error=name_taken_error(draft.workload, free=""))
    return BatchItem(submission, warnings=submission.warnings)


def _reject_duplicate_names(drafts: Sequence[Draft | BerthError]) -> list[Draft | BerthError]:
    """Replace drafts with errors if their names are in use by live workloads or earlier drafts."""
    workloads = [draft.workload for draft in drafts if isinstance(draft, Draft)]
    live = Workload.objects.exclude(phase__in=ENDED_PHASES).filter(
        project__in={row.project_id for row in workloads}, name__in={row.name for row in workloads}
    )
    live_names = set(live.values_list("project_id", "name"))
    checked: list[Draft | BerthError] = []
    for draft in drafts:
        if isinstance(draft, Draft):
            name = (draft.workload.project_id, draft.workload.name)
            checked.append(name_taken_error(draft.workload, free="") if name in live_names else draft)
            live_names.add(name)
        else:
            checked.append(draft)
    return checked


def _reject_atomic_batch(atomic: bool, outcomes: Sequence[object]) -> None:
    """Raise Invalid if the batch is atomic and has rejected documents."""
    errors = [(index, error) for index, error in enumerate(outcomes) if isinstance(error, BerthError)]
    if atomic and errors:
        raise Invalid(problem for index, error in errors for problem in item_problems(index, error))
