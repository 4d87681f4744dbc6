"""Build audit rows of evictions, real or predicted."""

from collections.abc import Iterable
from typing import Any

from scheduler.engine import plan
from scheduler.engine.model import Group, Role, Workload
from scheduler.loop.observe.view import ClusterView
from scheduler.models import Eviction
from scheduler.reports.visibility import redacted

UNITS = {"gpu": "milli-GPU", "cpu": "milli-CPU", "memory_mib": "MiB"}


def numbers_of(decided: plan.Eviction, victim_milli: int, winner_milli: int | None) -> dict[str, Any]:
    """Return queues before and after an eviction, refused alternatives, and sizes in milli-GPU."""
    handle = decided.preemptor or decided.workload
    return {
        "victim": [_standing_numbers(standing) for standing in decided.victim],
        "preemptor": [_standing_numbers(standing) for standing in decided.winner],
        "refused": [redacted(blocker, handle).message for blocker in decided.refused],
        "sizes": {"victim": victim_milli, "preemptor": winner_milli},
        "units": UNITS,
    }


def predicted_evictions(
    bundles: Iterable[plan.Bundle], seen: ClusterView, candidates: Iterable[Workload] = ()
) -> list[Eviction]:
    """Return unsaved rows in the plan's order. `candidates` are workloads that are not submitted yet."""
    by_name = {each.name: each for each in (*seen.snapshot.workloads, *candidates)}
    return [
        _unsaved_row(evicted, bundle, seen, by_name) for bundle in bundles for evicted in bundle.evictions
    ]


def least_gpus(tree: Group | Role) -> int:
    """Return the milli-GPU of the smallest size at which the workload can run."""
    if isinstance(tree, Role):
        return tree.min * tree.request.amounts.gpu
    return sum(sorted(least_gpus(child) for child in tree.children)[: tree.need])


def _unsaved_row(
    evicted: plan.Eviction, bundle: plan.Bundle, seen: ClusterView, by_name: dict[str, Workload]
) -> Eviction:
    victim = by_name[evicted.workload]
    winner = by_name.get(evicted.preemptor) if evicted.preemptor else None
    owner, pool = seen.queues.owners[victim.project], seen.pools[bundle.pool]
    assert owner.project_id is not None, "a workload is in a project's queue"
    row = Eviction(
        at=seen.at,
        kind=str(evicted.kind),
        pool_id=pool.pk,
        pool_name=pool.name,
        workload_id=_workload_id(evicted.workload, seen),
        workload_name=_name(evicted.workload),
        project_id=owner.project_id,
        project_name=owner.name,
        department_id=owner.department_id,
        department_name=owner.department,
        rule=evicted.rule,
        numbers=numbers_of(evicted, least_gpus(victim.tree), least_gpus(winner.tree) if winner else None),
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
        preemptor_owner = seen.queues.owners[winner.project]
        row.preemptor_id = _workload_id(winner.name, seen)
        row.preemptor_name = _name(winner.name)
        row.preemptor_project_id = preemptor_owner.project_id
        row.preemptor_project_name = preemptor_owner.name
    return row


def _workload_id(handle: str, seen: ClusterView) -> Any:
    workload = seen.workloads.get(handle)
    return None if workload is None else workload.pk


def _name(handle: str) -> str:
    return handle.partition("/")[2]


def _standing_numbers(standing: plan.Standing) -> dict[str, Any]:
    return {
        "queue": standing.queue,
        "quota": standing.quota._asdict(),
        "share": standing.share._asdict(),
        "allocated_before": standing.allocated_before._asdict(),
        "allocated_after": standing.allocated_after._asdict(),
        "usage": standing.usage,
    }
