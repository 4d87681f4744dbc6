"""Build audit rows of evictions, real or predicted."""

from collections.abc import Iterable
from typing import Any

from scheduler.engine import plan
from scheduler.engine.model import Group, Role, Workload
from scheduler.loop.observe.view import ClusterView
from scheduler.models import Eviction
from scheduler.reports.visibility import discreet

UNITS = {"gpu": "milli-GPU", "cpu": "milli-CPU", "memory_mib": "MiB"}


def numbers_of(decided: plan.Eviction, victim_milli: int, winner_milli: int | None) -> dict[str, Any]:
    """How all queues concerned stood before and after, what was refused before, how large the two are."""
    whose = decided.preemptor or decided.workload
    return {
        "victim": [_numbers(standing) for standing in decided.victim],
        "preemptor": [_numbers(standing) for standing in decided.winner],
        "refused": [discreet(found, whose).message for found in decided.refused],
        "sizes": {"victim": victim_milli, "preemptor": winner_milli},
        "units": UNITS,
    }


def foreseen(
    bundles: Iterable[plan.Bundle], seen: ClusterView, asked: Iterable[Workload] = ()
) -> list[Eviction]:
    """Rows without ids, in the plan's order. `asked`: workloads that only the question knows."""
    known = {each.name: each for each in (*seen.snapshot.workloads, *asked)}
    return [_row(gone, bundle, seen, known) for bundle in bundles for gone in bundle.evictions]


def least_gpus(tree: Group | Role) -> int:
    """Milli-GPU of the smallest form in which it could run."""
    if isinstance(tree, Role):
        return tree.min * tree.request.amounts.gpu
    return sum(sorted(least_gpus(child) for child in tree.children)[: tree.need])


def _row(gone: plan.Eviction, bundle: plan.Bundle, seen: ClusterView, known: dict[str, Workload]) -> Eviction:
    victim = known[gone.workload]
    winner = known.get(gone.preemptor) if gone.preemptor else None
    owner, pool = seen.queues.owners[victim.project], seen.pools[bundle.pool]
    assert owner.project_id is not None, "a workload is in a project's queue"
    row = Eviction(
        at=seen.at,
        kind=str(gone.kind),
        pool_id=pool.pk,
        pool_name=pool.name,
        workload_id=_id_of(gone.workload, seen),
        workload_name=_name(gone.workload),
        project_id=owner.project_id,
        project_name=owner.name,
        department_id=owner.department_id,
        department_name=owner.department,
        rule=gone.rule,
        numbers=numbers_of(gone, least_gpus(victim.tree), least_gpus(winner.tree) if winner else None),
        pods=[{"role": role, "index": index} for role, index in gone.pods],
        entire_workload=gone.whole,
        gpu_milli=sum(
            step.milli * len(step.devices)
            for step in bundle.steps
            if isinstance(step, plan.Evict) and step.workload == gone.workload
        ),
        lost_gpu_seconds=gone.lost_gpu_seconds,
    )
    if winner is not None:
        whose = seen.queues.owners[winner.project]
        row.preemptor_id = _id_of(winner.name, seen)
        row.preemptor_name = _name(winner.name)
        row.preemptor_project_id, row.preemptor_project_name = whose.project_id, whose.name
    return row


def _id_of(handle: str, seen: ClusterView) -> Any:
    found = seen.workloads.get(handle)
    return None if found is None else found.pk


def _name(handle: str) -> str:
    return handle.partition("/")[2]


def _numbers(standing: plan.Standing) -> dict[str, Any]:
    return {
        "queue": standing.queue,
        "quota": standing.quota._asdict(),
        "share": standing.share._asdict(),
        "allocated_before": standing.allocated_before._asdict(),
        "allocated_after": standing.allocated_after._asdict(),
        "usage": standing.usage,
    }
