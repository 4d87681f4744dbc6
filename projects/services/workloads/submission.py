"""Submit workloads: check the document, store the workload and warn the submitter."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

from django.db import IntegrityError
from django.db.models import Q
from django.utils import timezone

from berth.core.amounts import MILLI, UNLIMITED, Amounts, Bounds
from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec import GroupShape, RoleShape, WorkloadSpec, build_tree, parse_workload
from berth.core.spec.manifest import is_manifest
from berth.db.references import checked_references
from berth.db.wake import wake
from projects.access import Action, require
from projects.actor import Actor
from projects.engine import admission
from projects.models import Phase, Project, Quota, RoleNode, Workload
from projects.services import announce, audit, events
from projects.services.inference import services
from projects.services.workloads.checks import (
    check_deadline,
    check_runnable,
    missing_dependencies,
    resolve_pools,
    resolve_project,
)
from projects.services.workloads.runtime_support import limit_warnings, pools_for_image
from projects.services.workloads.secret_support import pools_with_secrets

NO_QUOTA = Bounds(0, None, None)


MAX_GANG_GPU = 10**9  # maximum milli-GPU per gang


@dataclass(frozen=True)
class Submission:
    """A stored workload and the warnings for its submitter."""

    workload: Workload
    warnings: list[str]


def submit(
    *,
    actor: Actor,
    document: Mapping[str, Any],
    project: Project | None = None,
    now: datetime | None = None,
) -> Workload:
    """Submit a workload like `submit_with_warnings`, for callers that do not show warnings."""
    return submit_with_warnings(actor=actor, document=document, project=project, now=now).workload


def submit_with_warnings(
    *,
    actor: Actor,
    document: Mapping[str, Any],
    project: Project | None = None,
    now: datetime | None = None,
) -> Submission:
    """Store a new pending workload. The document may name the project instead of `project`.

    Raises Invalid with every problem in the document, NotFound or Forbidden for the project, or Conflict if a
    live workload already has the name.
    """
    workload, spec = prepare_workload(actor=actor, document=document, project=project, now=now)
    tree = build_tree(spec)
    try:
        with checked_references(f"The project {workload.project.name}"):
            workload.save(force_insert=True)
            _store_tree(workload, tree)
            services.create_service(workload, spec, workload.submitted_at)
            warnings = collect_warnings(workload, spec)
            message = " ".join([f"Submitted by {actor.name}.", *warnings])
            events.record("submitted", workload, message, actor=actor.name, data={"warnings": warnings})
            _audit_submission(actor, workload)
            announce.workload_changed(workload)
            wake("scheduler")
    except IntegrityError as error:
        if "workload_name_once_while_live" not in str(error):
            raise
        raise name_taken_error(workload) from None
    return Submission(workload, warnings)


def name_taken_error(workload: Workload) -> Conflict:
    """Return the error for a name that a live workload in the project already has."""
    problem = Problem(
        "name",
        "is already in use",
        format_value(workload.name),
        "a name that no live workload of the project has",
    )
    return Conflict(
        f"{workload.project.name} already has a live workload named {workload.name}. "
        "Choose another name, or wait until it ends.",
        errors=[problem.to_dict()],
    )


def prepare_workload(
    *,
    actor: Actor,
    document: Mapping[str, Any],
    project: Project | None = None,
    now: datetime | None = None,
) -> tuple[Workload, WorkloadSpec]:
    """Return the checked, unsaved workload that `submit` would store. Dry runs also use it."""
    spec = parse_workload(document)
    where = "metadata.namespace" if is_manifest(document) else "project"
    project = resolve_project(actor, spec, project, where)
    require(actor, Action.SUBMIT, project)
    check_runnable(spec)
    services.check_service(spec)
    at = now or timezone.now()
    check_deadline(spec, at)
    tree = build_tree(spec)
    workload = Workload(
        id=uuid.uuid4(),
        project=project,
        name=spec.name,
        kind=spec.kind,
        submitted_by=actor.user,
        spec={**spec.document(), "project": project.name},
        labels=dict(spec.labels),
        pools=pools_with_secrets(spec, project, pools_for_image(spec, resolve_pools(spec, at))),
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
        gpu_milli_min=minimum_demand(tree).gpu,
    )
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
    return workload, spec


def collect_warnings(workload: Workload, spec: WorkloadSpec) -> list[str]:
    """Return warnings for the submitter of an accepted document."""
    return [
        *quota_warnings(workload, build_tree(spec)),
        *missing_dependencies(workload, spec),
        *limit_warnings(spec, workload.pools),
    ]


def quota_warnings(workload: Workload, tree: GroupShape) -> list[str]:
    """Return quota warnings, or none if at least one of the workload's pools has no warnings."""
    warnings = [_pool_warnings(workload, minimum_demand(tree), pool) for pool in workload.pools]
    return warnings[0] if all(warnings) else []


def _pool_warnings(workload: Workload, requested: Amounts, pool: str) -> list[str]:
    project, department = workload.project, workload.project.department
    related = Q(project__department=department) | Q(department=department)
    quotas = Quota.objects.filter(related, pool__name=pool).select_related("project", "department")
    allowances = {(quota.project_id, quota.department_id): quota_allowance(quota) for quota in quotas}
    project_allowance = allowances.get(
        (project.pk, None), admission.Allowance(project.name, NO_QUOTA, UNLIMITED)
    )
    department_allowance = allowances.get(
        (None, department.pk), admission.Allowance(department.name, NO_QUOTA, UNLIMITED)
    )
    oversold = admission.oversold(
        department_allowance, [one for (owner, _), one in allowances.items() if owner is not None]
    )
    return admission.submission_warnings(
        requested, workload.preemptible, [project_allowance, department_allowance], bool(oversold)
    )


def quota_allowance(quota: Quota) -> admission.Allowance:
    limit = Bounds(quota.limit_gpu_milli, quota.limit_cpu_milli, quota.limit_memory_mib)
    return admission.Allowance(
        quota.owner.name, Bounds(quota.gpu_milli, quota.cpu_milli, quota.memory_mib), limit
    )


def _audit_submission(actor: Actor, workload: Workload) -> None:
    """Audit a user's submission. Engines that a service adds are recorded with their scale request."""
    if actor.is_system:
        return
    after = {
        "phase": workload.phase,
        "kind": workload.kind,
        "priority": workload.priority,
        "pools": workload.pools,
        "gpus": workload.gpu_milli_min / MILLI,
    }
    audit.write_entry(actor, "submit", workload, after=after, project=workload.project)


def minimum_demand(node: GroupShape | RoleShape) -> Amounts:
    """Return the resources that the smallest possible gang requests."""
    if isinstance(node, RoleShape):
        return node.amounts.times(node.min)
    each = [minimum_demand(child) for child in node.children]
    return Amounts(*(sum(sorted(column)[: node.need]) for column in zip(*each, strict=True)))


def _store_tree(workload: Workload, tree: GroupShape) -> None:
    """Store the role tree as rows, numbered depth first."""
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
