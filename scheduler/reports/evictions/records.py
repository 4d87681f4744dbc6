"""Build audit records for actual and predicted evictions."""

from collections.abc import Iterable
from typing import Any

from scheduler.engine import plan
from scheduler.engine.model import Role, RoleGroup, Workload
from scheduler.loop.observe.view import ClusterView
from scheduler.models import Eviction
from scheduler.reports.visibility import redact_blocker

UNITS = {"gpu": "milli-GPU", "cpu": "milli-CPU", "memory_mib": "MiB"}


def audit_record_numbers(
    eviction: plan.Eviction, victim_milli: int, preemptor_milli: int | None
) -> dict[str, Any]:
    """Return the figures for an eviction's audit record: queues before and after, rejected alternatives, and
    sizes in milli-GPU.
    """
    handle = eviction.preemptor or eviction.workload
    return {
        "victim": [_impact_on_queue(status) for status in eviction.victim],
        "preemptor": [_impact_on_queue(status) for status in eviction.winner],
        "rejected": [redact_blocker(blocker, handle).message for blocker in eviction.rejected],
        "sizes": {"victim": victim_milli, "preemptor": preemptor_milli},
        "units": UNITS,
    }


def predicted_evictions(
    bundles: Iterable[plan.Bundle], view: ClusterView, candidates: Iterable[Workload] = ()
) -> list[Eviction]:
    """Return a plan's evictions as unsaved audit rows.

    `candidates` are workloads that have not been submitted yet.
    """
    by_name = {workload.name: workload for workload in (*view.snapshot.workloads, *candidates)}
    return [
        _build_unsaved_row(evicted, bundle, view, by_name)
        for bundle in bundles
        for evicted in bundle.evictions
    ]


def minimum_gpu_milli(tree: RoleGroup | Role) -> int:
    """Return the smallest allocation that the workload can run with, in milli-GPU."""
    if isinstance(tree, Role):
        return tree.min * tree.request.amounts.gpu
    return sum(sorted(minimum_gpu_milli(child) for child in tree.children)[: tree.need])


def _build_unsaved_row(
    evicted: plan.Eviction, bundle: plan.Bundle, view: ClusterView, by_name: dict[str, Workload]
) -> Eviction:
    victim = by_name[evicted.workload]
    winner = by_name.get(evicted.preemptor) if evicted.preemptor else None
    owner, pool = view.queues.owners[victim.project], view.pools[bundle.pool]
    assert owner.project_id is not None, "a workload belongs to a project's queue"
    row = Eviction(
        at=view.at,
        kind=str(evicted.kind),
        pool_id=pool.pk,
        pool_name=pool.name,
        workload_id=_workload_id(evicted.workload, view),
        workload_name=_workload_name(evicted.workload),
        project_id=owner.project_id,
        project_name=owner.name,
        department_id=owner.department_id,
        department_name=owner.department,
        rule=evicted.rule,
        numbers=audit_record_numbers(
            evicted, minimum_gpu_milli(victim.tree), minimum_gpu_milli(winner.tree) if winner else None
        ),
        pods=[{"role": role, "index": index} for role, index in evicted.pods],
        entire_workload=evicted.whole,
        gpu_milli=sum(
            step.milli * len(step.devices)
            for step in bundle.steps
            if isinstance(step, plan.Evict) and step.workload == evicted.workload
        ),
        lost_gpu_seconds=evicted.lost_gpu_seconds,
    )
    if winner is not None:
        preemptor_owner = view.queues.owners[winner.project]
        row.preemptor_id = _workload_id(winner.name, view)
        row.preemptor_name = _workload_name(winner.name)
        row.preemptor_project_id = preemptor_owner.project_id
        row.preemptor_project_name = preemptor_owner.name
    return row


def _workload_id(handle: str, view: ClusterView) -> Any:
    workload = view.workloads.get(handle)
    return None if workload is None else workload.pk


def _workload_name(handle: str) -> str:
    return handle.partition("/")[2]


def _impact_on_queue(status: plan.QueueImpact) -> dict[str, Any]:
    return {
        "queue": status.queue,
        "quota": status.quota._asdict(),
        "share": status.share._asdict(),
        "allocated_before": status.allocated_before._asdict(),
        "allocated_after": status.allocated_after._asdict(),
        "usage": status.usage,
    }
