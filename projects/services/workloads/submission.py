"""Validate and store submitted workloads, and return warnings for the submitter."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection
from django.utils import timezone
from psycopg.errors import ForeignKeyViolation

from berth.core.errors import Conflict, Invalid, NotFound
from berth.core.problems import Problem, format_value
from berth.core.spec import GroupShape, RoleShape, WorkloadSpec, build_tree, parse_workload
from berth.core.spec.sections.after import WorkloadReference
from berth.core.values.amounts import MILLI, Amounts
from berth.db.loops.wake import wake
from berth.db.writes.new_rows import new_row
from berth.db.writes.references import ensure_transaction
from berth.db.writes.stored_responses import ResponseRow
from projects.actor import Actor
from projects.engine import admission
from projects.models import Audit, Event, Phase, Project, Workload
from projects.services import announce, audit, events
from projects.services.code_fetches import store_fetches, waiting_message
from projects.services.dependencies import dependency_problems, missing_dependency_warnings
from projects.services.inference import services
from projects.services.workloads.checks.document import find_references, parse_submission
from projects.services.workloads.checks.runtimes import limit_warnings
from projects.services.workloads.names import free_name_to_suggest
from projects.services.workloads.pending.bursting import describe_bursting
from projects.services.workloads.storing import store_workloads
from projects.services.workloads.submission_view import SubmissionView

MAX_GANG_GPU = 10**9  # maximum milli-GPU per gang


@dataclass(frozen=True, slots=True)
class Draft:
    """Checked workload that has not been saved yet."""

    workload: Workload
    spec: WorkloadSpec
    tree: GroupShape
    demand: Amounts  # demand of the smallest possible gang
    resubmitted_from: str = ""  # name of the ended workload that is resubmitted


@dataclass(frozen=True, slots=True)
class Submission:
    """Stored workload, and the warnings for the submitter."""

    workload: Workload
    warnings: list[str]
    replicas_max: int


class NameInUse(Conflict):
    """Raised if a live workload of the project already has the name."""


Respond = Callable[[Submission], ResponseRow]


def submit(
    *,
    actor: Actor,
    document: Mapping[str, Any],
    project: Project | None = None,
    now: datetime | None = None,
) -> Workload:
    """Submit a workload like `submit_with_warnings`, but return only the workload."""
    return submit_with_warnings(actor=actor, document=document, project=project, now=now).workload


def submit_with_warnings(
    *,
    actor: Actor,
    document: Mapping[str, Any],
    project: Project | None = None,
    now: datetime | None = None,
    respond: Respond | None = None,
    resubmitted_from: str = "",
) -> Submission:
    """Store a new pending workload.

    If `project` is None, the document names the project. `respond` returns the response to store with the
    workload. `resubmitted_from` is the name of the original workload, if any. Raises Invalid with every
    problem in the document, NotFound or Forbidden if the user may not submit to the project, and NameInUse if
    a live workload already has the name.
    """
    at = now or timezone.now()
    spec = parse_submission(SubmissionView(actor), document, project=project, at=at)
    is_alone = not connection.in_atomic_block and is_stored_by_one_statement(spec)
    with _detect_deleted_project() if is_alone else ensure_transaction():
        view = SubmissionView(actor, locks=not is_alone)
        draft = prepare(view, document, spec, project=project, now=at)
        draft = replace(draft, resubmitted_from=resubmitted_from)
        require_valid_dependencies(view, draft)
        (submission,) = store_drafts(view, [draft], respond)
    if submission is None:
        raise name_taken_error(draft.workload)
    return submission


def is_stored_by_one_statement(spec: WorkloadSpec) -> bool:
    """Return whether a single SQL statement can store the whole submission.

    In that case, neither an explicit transaction nor a lock on the project is needed.
    """
    return spec.code is None and spec.service is None and not spec.after


@contextmanager
def _detect_deleted_project() -> Iterator[None]:
    """Raise NotFound if a statement in the block refers to a project that has been deleted."""
    try:
        yield
    except IntegrityError as error:
        cause = error.__cause__
        if isinstance(cause, ForeignKeyViolation) and "project_id" in (cause.diag.constraint_name or ""):
            raise NotFound("The project has been deleted.") from None
        raise


def require_valid_dependencies(
    view: SubmissionView, draft: Draft, *, edited: WorkloadReference | None = None
) -> None:
    """Raise Invalid if the document's dependencies are invalid."""
    (problems,) = dependency_problems(view, [(draft.workload.project, draft.spec)], edited=edited)
    if problems:
        raise Invalid(problems)


def name_taken_error(workload: Workload, *, free: str | None = None) -> NameInUse:
    """Return the error for a name that a live workload of the project already uses.

    `free` is the name to suggest, "" to suggest none, or None to look for a free name.
    """
    project, name = workload.project.name, workload.name
    free = free_name_to_suggest(workload.project, name) if free is None else free
    another = "a name that no live workload of the project has"
    problem = Problem(
        "name", "is already in use", format_value(name), f"{free}, or {another}" if free else another
    )
    return NameInUse(
        f"{project} already has a live workload named {name}. "
        f"Choose another name{f', such as {free}' if free else ''}, or wait until {name} ends.",
        errors=[problem.to_dict()],
    )


def prepare(
    view: SubmissionView,
    document: Mapping[str, Any],
    spec: WorkloadSpec,
    *,
    project: Project | None = None,
    now: datetime | None = None,
    is_array: bool = False,
) -> Draft:
    """Check a parsed document, and return the workload that `submit` would store.

    If `is_array` is set, the workload is the model for the array's tasks.
    """
    at = now or timezone.now()
    project, pools, code, code_fetch = find_references(view, document, spec, project, at, is_array=is_array)
    tree = build_tree(spec)
    demand = minimum_demand(tree)
    workload = new_row(
        Workload,
        id=uuid.uuid4(),
        project_id=project.pk,
        name=spec.name,
        kind=spec.kind,
        submitted_by_id=view.actor.user and view.actor.user.pk,
        spec={**spec.document(), "project": project.name},
        labels=dict(spec.labels),
        code_id=code and code.pk,
        code_fetch_id=code_fetch and code_fetch.pk,
        code_wait="" if code_fetch is None else waiting_message(str(code_fetch)),
        pools=pools,
        priority=spec.effective_priority,
        preemptible=spec.is_preemptible,
        max_runtime=spec.max_runtime,
        deadline=spec.deadline,
        idle_timeout=spec.idle_timeout,
        phase=Phase.PENDING,
        reason="Submitted",
        message="Waiting for the next scheduling cycle.",
        since=at,
        pending_since=at,
        submitted_at=at,
        gpu_milli_min=demand.gpu,
    )
    workload.project, workload.submitted_by, workload.code = project, view.actor.user, code
    workload.code_fetch = code_fetch
    if workload.gpu_milli_min > MAX_GANG_GPU:
        raise Invalid(
            [
                Problem(
                    "roles",
                    "request too many GPUs",
                    f"{workload.gpu_milli_min // 1000} GPUs",
                    f"at most {MAX_GANG_GPU // 1000} GPUs in one gang",
                )
            ]
        )
    return Draft(workload, spec, tree, demand)


def store_drafts(
    view: SubmissionView, drafts: Sequence[Draft], respond: Respond | None = None
) -> list[Submission | None]:
    """Store the workloads in the caller's transaction.

    Return None for a workload whose name is in use by a live workload or an earlier draft.
    """
    actor, warnings = view.actor, collect_warnings(view, drafts)
    submissions = [
        Submission(draft.workload, advice, sum(role.maximum for role in draft.spec.all_roles))
        for draft, advice in zip(drafts, warnings, strict=True)
    ]
    store_fetches([draft.workload for draft in drafts])
    stored = store_workloads(
        [(draft.workload, draft.tree) for draft in drafts],
        [_submission_event(actor, draft, advice) for draft, advice in zip(drafts, warnings, strict=True)],
        [_audit_entry(actor, draft.workload) for draft in drafts if not actor.is_system],
        [] if respond is None else [respond(submission) for submission in submissions],
    )
    written = [draft for draft in drafts if draft.workload.pk in stored]
    services.create_services([(draft.workload, draft.spec) for draft in written])
    for draft in written:
        draft.workload._state.adding = False
    if written:
        wake("scheduler")
        announce.workloads_changed([draft.workload for draft in written])
    return [submission if submission.workload.pk in stored else None for submission in submissions]


def collect_warnings(view: SubmissionView, drafts: Sequence[Draft]) -> list[list[str]]:
    """Return the warnings that the submitter receives for each accepted document."""
    missing = missing_dependency_warnings([(draft.workload.project, draft.spec) for draft in drafts])
    return [
        [
            *quota_warnings(view, draft.workload, draft.demand),
            *dependencies,
            *limit_warnings(view, draft.spec, draft.workload.pools),
            *filter(None, [describe_bursting(draft.workload, draft.workload.since)]),
        ]
        for draft, dependencies in zip(drafts, missing, strict=True)
    ]


def current_quota_warnings(actor: Actor, workload: Workload) -> list[str]:
    """Return the quota warnings that submitting the workload's document would cause now."""
    try:
        spec = parse_workload(workload.spec)
    except Invalid:
        return []
    view = SubmissionView(actor)
    view.load_projects([workload.project.name])
    return quota_warnings(view, workload, minimum_demand(build_tree(spec)))


def quota_warnings(view: SubmissionView, workload: Workload, demand: Amounts) -> list[str]:
    """Return the quota warnings for the workload's first pool.

    Return an empty list if any of its pools causes no warnings.
    """
    warnings: list[list[str]] = []
    for pool in filter(view.pools.__contains__, workload.pools):
        project, department, is_oversubscribed = view.allowances(workload.project, pool)
        path = [project, department]
        warnings.append(admission.submission_warnings(demand, workload.preemptible, path, is_oversubscribed))
        if not warnings[-1]:
            return []
    return warnings[0] if warnings else []


def _submission_event(actor: Actor, draft: Draft, warnings: Sequence[str]) -> Event:
    source = draft.resubmitted_from
    data: dict[str, Any] = {"warnings": list(warnings)}
    first = f"Resubmitted from {source} by {actor.name}." if source else f"Submitted by {actor.name}."
    if source:
        data["resubmitted_from"] = source
    return events.build(
        "submitted", draft.workload, " ".join([first, *warnings]), actor=actor.name, data=data
    )


def _audit_entry(actor: Actor, workload: Workload) -> Audit:
    """Return the audit entry for a user's submission.

    Inference engines are recorded with their scale request instead.
    """
    after = {
        "phase": workload.phase,
        "kind": workload.kind,
        "priority": workload.priority,
        "pools": workload.pools,
        "gpus": workload.gpu_milli_min / MILLI,
    }
    return audit.build_entry(actor, "submit", workload, after=after, project=workload.project)


def minimum_demand(node: GroupShape | RoleShape) -> Amounts:
    """Return the resources that the smallest possible gang requests."""
    if isinstance(node, RoleShape):
        return node.amounts.times(node.min)
    each = [minimum_demand(child) for child in node.children]
    return Amounts(*(sum(sorted(column)[: node.need]) for column in zip(*each, strict=True)))
