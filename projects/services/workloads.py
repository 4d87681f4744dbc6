"""Submit, cancel, suspend, resume and delete workloads."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.utils import timezone

from berth.core.amounts import MILLI, UNLIMITED, Amounts, Bounds
from berth.core.errors import Conflict, Forbidden, Invalid, NotFound
from berth.core.problems import Problem, shown
from berth.core.spec import GroupShape, RoleShape, WorkloadSpec, parse_workload, tree_of
from berth.core.spec.manifest import is_manifest
from berth.db.references import with_living_references
from berth.db.wake import wake
from projects.access import Action, require
from projects.acting import Acting
from projects.engine import admission, lifecycle
from projects.models import Phase, Project, Quota, RoleNode, Workload
from projects.services import announce, audit, events, inference, leftovers
from projects.services.moves import move
from projects.services.runtime_support import limit_warnings, pools_that_run
from projects.services.submission_checks import (
    check_deadline,
    check_runnable,
    missing_dependencies,
    pools_of,
    project_of,
)

NO_QUOTA = Bounds(0, None, None)
ASKED_MOST = 10**9  # milli-GPU of one gang


@dataclass(frozen=True)
class Submission:
    """A stored workload, and what its submitter should know about it."""

    workload: Workload
    warnings: list[str]


def submit(
    *,
    acting: Acting,
    document: Mapping[str, Any],
    project: Project | None = None,
    now: datetime | None = None,
) -> Workload:
    """Store a new pending workload, as `submit_with_warnings` does, where warnings have no reader."""
    return submit_with_warnings(acting=acting, document=document, project=project, now=now).workload


def submit_with_warnings(
    *,
    acting: Acting,
    document: Mapping[str, Any],
    project: Project | None = None,
    now: datetime | None = None,
) -> Submission:
    """Store a new pending workload. `project` may also stand in the document.

    Raises Invalid with every fault of the document, NotFound or Forbidden for the project, Conflict for
    the name of a workload that is still live.
    """
    workload, spec = prepared(acting=acting, document=document, project=project, now=now)
    tree = tree_of(spec)
    try:
        with with_living_references(f"The project {workload.project.name}"):
            workload.save(force_insert=True)
            _store_tree(workload, tree)
            inference.declare(workload, spec, workload.submitted_at)
            doubts = warnings_of(workload, spec)
            said = " ".join([f"Submitted by {acting.name}.", *doubts])
            events.record("submitted", workload, said, actor=acting.name, data={"warnings": doubts})
            _audit_submission(acting, workload)
            announce.workload_changed(workload)
            wake("scheduler")
    except IntegrityError as error:
        if "workload_name_once_while_live" not in str(error):
            raise
        raise name_taken(workload) from None
    return Submission(workload, doubts)


def name_taken(workload: Workload) -> Conflict:
    """Two live workloads of a project never have one name."""
    problem = Problem("name", "is taken", shown(workload.name), "a name that no live workload here has")
    return Conflict(
        f"{workload.project.name} has a live workload named {workload.name} already: "
        "choose another name or wait for its end.",
        errors=[problem.to_dict()],
    )


def prepared(
    *,
    acting: Acting,
    document: Mapping[str, Any],
    project: Project | None = None,
    now: datetime | None = None,
) -> tuple[Workload, WorkloadSpec]:
    """The workload that `submit` would store, checked but not stored: what a dry run starts from."""
    spec = parse_workload(document)
    where = "metadata.namespace" if is_manifest(document) else "project"
    project = project_of(acting, spec, project, where)
    require(acting, Action.SUBMIT, project)
    check_runnable(spec)
    inference.check(spec)
    at = now or timezone.now()
    check_deadline(spec, at)
    tree = tree_of(spec)
    workload = Workload(
        id=uuid.uuid4(),
        project=project,
        name=spec.name,
        kind=spec.kind,
        submitted_by=acting.user,
        spec={**spec.document(), "project": project.name},
        labels=dict(spec.labels),
        pools=pools_that_run(spec, pools_of(spec, at)),
        priority=spec.effective_priority,
        preemptible=spec.is_preemptible,
        max_runtime=spec.max_runtime,
        deadline=spec.deadline,
        idle_timeout=spec.idle_timeout,
        phase=Phase.PENDING,
        reason="Submitted",
        message="Waiting for the next scheduling cycle.",
        since=at,
        submitted_at=at,
        gpu_milli_min=asked_by(tree).gpu,
    )
    if workload.gpu_milli_min > ASKED_MOST:
        raise Invalid(
            [
                Problem(
                    "roles",
                    "ask for too much",
                    f"{workload.gpu_milli_min // 1000} GPUs",
                    f"at most {ASKED_MOST // 1000} GPUs in one gang",
                )
            ]
        )
    return workload, spec


def warnings_of(workload: Workload, spec: WorkloadSpec) -> list[str]:
    """Return what the submitter of an accepted document should know, one sentence or two each."""
    return [
        *warnings(workload, tree_of(spec)),
        *missing_dependencies(workload, spec),
        *limit_warnings(spec, workload.pools),
    ]


def warnings(workload: Workload, tree: GroupShape) -> list[str]:
    """Why it can hardly start as things stand; empty as soon as one of its pools raises no doubt."""
    doubts = [_doubts(workload, asked_by(tree), pool) for pool in workload.pools]
    return doubts[0] if all(doubts) else []


def _doubts(workload: Workload, asked: Amounts, pool: str) -> list[str]:
    project, department = workload.project, workload.project.department
    related = Q(project__department=department) | Q(department=department)
    quotas = Quota.objects.filter(related, pool__name=pool).select_related("project", "department")
    held = {(quota.project_id, quota.department_id): held_of(quota) for quota in quotas}
    own = held.get((project.pk, None), admission.Held(project.name, NO_QUOTA, UNLIMITED))
    whole = held.get((None, department.pk), admission.Held(department.name, NO_QUOTA, UNLIMITED))
    oversold = admission.oversold(whole, [one for (owner, _), one in held.items() if owner is not None])
    return admission.submission_warnings(asked, workload.preemptible, [own, whole], bool(oversold))


def held_of(quota: Quota) -> admission.Held:
    limit = Bounds(quota.limit_gpu_milli, quota.limit_cpu_milli, quota.limit_memory_mib)
    return admission.Held(quota.owner.name, Bounds(quota.gpu_milli, quota.cpu_milli, quota.memory_mib), limit)


def cancel(*, acting: Acting, workload: Workload, now: datetime | None = None) -> Workload:
    """Ends it for good: at once when nothing runs, else after its pods have stopped. Again: no change."""
    return _wind_down(acting, workload, to=Phase.CANCELLED, reason="Cancelled", now=now)


def suspend(*, acting: Acting, workload: Workload, now: datetime | None = None) -> Workload:
    """Stops it until it is resumed; it keeps its place in time. Again: no change."""
    return _wind_down(acting, workload, to=Phase.SUSPENDED, reason="Suspended", now=now)


def resume(*, acting: Acting, workload: Workload, now: datetime | None = None) -> Workload:
    require(acting, Action.OPERATE, workload)
    at = now or timezone.now()
    with transaction.atomic():
        locked = _locked(workload)
        if locked.phase == Phase.SUSPENDED:
            moved = move(
                locked,
                expected=[Phase.SUSPENDED],
                to=Phase.PENDING,
                reason="Resumed",
                message=f"Resumed by {acting.name}.",
                actor=acting.name,
                now=at,
                backoff_until=None,
            )
            assert moved, "the row is locked"
        elif locked.phase == Phase.STOPPING and locked.next_phase == Phase.SUSPENDED:
            _steer(locked, next_phase=Phase.PENDING)
            events.record(
                "resumed", locked, f"Resumed by {acting.name} while it was stopping.", actor=acting.name
            )
            announce.workload_changed(locked)
        elif locked.phase in lifecycle.ENDED:
            raise Conflict(f"It has ended ({locked.phase}): submit it anew.")
        else:
            return locked
        _audit(acting, "resume", locked, after=(found := _fresh(workload)))
        wake("scheduler")
    return found


def delete(*, acting: Acting, workload: Workload) -> None:
    """Removes an ended workload with its logs and files; its events and evictions stay in the history."""
    require(acting, Action.OPERATE, workload)
    with transaction.atomic():
        locked = _locked(workload)
        if locked.phase not in lifecycle.ENDED:
            raise Conflict(f"It is {locked.phase}: cancel it first, then delete it.")
        inference.refuse_while_engines_live(locked)
        events.record("deleted", locked, f"Deleted by {acting.name}.", actor=acting.name)
        _audit(acting, "delete", locked)
        announce.workload_changed(locked)
        leftovers.remember(locked)
        locked.delete()


@dataclass
class Bulk:
    """What came of each of several: one that is refused does not keep the others."""

    cancelled: list[Workload] = field(default_factory=list)
    refused: list[tuple[Workload, str]] = field(default_factory=list)


def bulk_cancel(*, acting: Acting, workloads: Iterable[Workload]) -> Bulk:
    """One by one, each in a transaction of its own."""
    outcome = Bulk()
    for workload in workloads:
        try:
            outcome.cancelled.append(cancel(acting=acting, workload=workload))
        except (Conflict, Forbidden, NotFound) as refusal:
            outcome.refused.append((workload, refusal.detail))
    return outcome


def _wind_down(acting: Acting, workload: Workload, *, to: str, reason: str, now: datetime | None) -> Workload:
    require(acting, Action.OPERATE, workload)
    at = now or timezone.now()
    said = f"{reason} by {acting.name}."
    with transaction.atomic():
        locked = _locked(workload)
        if locked.phase == to or (locked.phase == Phase.STOPPING and locked.next_phase == to):
            return locked
        if locked.phase in lifecycle.ENDED:
            raise Conflict(f"It has ended already ({locked.phase}).")
        if locked.phase == Phase.STOPPING:
            _redirect(locked, to, reason, said, acting)
        elif locked.phase in (Phase.STARTING, Phase.RUNNING):
            move(
                locked,
                expected=[locked.phase],
                to=Phase.STOPPING,
                next_phase=to,
                reason=reason,
                message=said,
                actor=acting.name,
                now=at,
            )
        else:
            move(
                locked,
                expected=[locked.phase],
                to=to,
                reason=reason,
                message=said,
                actor=acting.name,
                now=at,
                explanation=None,
            )
        _audit(acting, reason.lower(), locked, after=(found := _fresh(workload)))
        wake("scheduler")
    return found


def _redirect(locked: Workload, to: str, reason: str, said: str, acting: Acting) -> None:
    """It is stopping for another cause: let it stop, and change where that leads. A cancel wins."""
    if locked.next_phase in lifecycle.ENDED:
        raise Conflict(f"It is stopping already, on its way to {locked.next_phase}.")
    _steer(locked, next_phase=to, reason=reason, message=said)
    locked.reservations.all().delete()
    events.record(reason.lower(), locked, said, actor=acting.name)
    announce.workload_changed(locked)


def _steer(locked: Workload, **columns: Any) -> None:
    """No move, but a change all the same: whoever decided before it must decide again."""
    Workload.objects.filter(pk=locked.pk).update(version=F("version") + 1, **columns)


def _locked(workload: Workload) -> Workload:
    found = (
        Workload.objects.select_for_update(of=("self",))
        .select_related("project__department")
        .filter(pk=workload.pk)
        .first()
    )
    if found is None:
        raise NotFound("This workload was deleted.")
    return found


def _fresh(workload: Workload) -> Workload:
    return Workload.objects.select_related("project__department", "submitted_by", "pool").get(pk=workload.pk)


def _audit(acting: Acting, action: str, workload: Workload, after: Workload | None = None) -> None:
    before = {"phase": workload.phase}
    phase = None if after is None else {"phase": after.phase}
    audit.write_down(acting, action, workload, before=before, after=phase, project=workload.project)


def _audit_submission(acting: Acting, workload: Workload) -> None:
    """Record what a person submits; engines that a service adds stand in its scale request."""
    if acting.is_system:
        return
    after = {
        "phase": workload.phase,
        "kind": workload.kind,
        "priority": workload.priority,
        "pools": workload.pools,
        "gpus": workload.gpu_milli_min / MILLI,
    }
    audit.write_down(acting, "submit", workload, after=after, project=workload.project)


def asked_by(node: GroupShape | RoleShape) -> Amounts:
    """What the smallest gang asks for, resource by resource."""
    if isinstance(node, RoleShape):
        return node.amounts.times(node.min)
    each = [asked_by(child) for child in node.children]
    return Amounts(*(sum(sorted(column)[: node.need]) for column in zip(*each, strict=True)))


def _store_tree(workload: Workload, tree: GroupShape) -> None:
    """The tree as rows, numbered depth first."""
    leaves: list[RoleNode] = []
    positions = count()

    def add(node: GroupShape | RoleShape, parent: RoleNode | None) -> None:
        row = RoleNode(
            workload=workload,
            parent=parent,
            position=next(positions),
            name=node.name,
            topology_required=(node.topology and node.topology.required) or "",
            topology_preferred=(node.topology and node.topology.preferred) or "",
        )
        if isinstance(node, RoleShape):
            row.min, row.max = node.min, node.max
            row.gpu_milli, row.gpu_devices, row.gpu_memory_mib = node.gpu, node.devices, node.gpu_memory_mib
            row.cpu_milli, row.memory_mib = node.cpu, node.memory_mib
            leaves.append(row)
            return
        row.need = node.need
        row.save(force_insert=True)
        for child in node.children:
            add(child, row)

    add(tree, None)
    RoleNode.objects.bulk_create(leaves)
