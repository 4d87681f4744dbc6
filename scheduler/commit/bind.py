"""Create the pods of a workload with their allocations, and start its run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from berth.core.words import amount, counted
from pools.models import Node
from projects.models import Phase, Pod, Workload
from projects.services.workloads.moves import move
from scheduler.engine.plan import Place
from scheduler.models import Allocation, DeviceClaim, Reservation
from scheduler.specs import Meaning

ACTOR = "scheduler"


@dataclass(frozen=True, slots=True)
class Start:
    """Who starts (or grows), where, and in which cycle that was decided."""

    workload: Workload
    meaning: Meaning
    places: Sequence[Place]
    nodes: Mapping[str, Node]
    now: datetime
    cycle: int | None
    meeting: Mapping[str, str | int] | None = None


@dataclass(slots=True)
class Bound:
    """Rows that go in together at the end."""

    pods: list[Pod] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    claims: list[DeviceClaim] = field(default_factory=list)
    started: list[Workload] = field(default_factory=list)

    def insert(self) -> None:
        if self.started:
            Reservation.objects.filter(workload__in=self.started).delete()
        Pod.objects.bulk_create(self.pods)
        Allocation.objects.bulk_create(self.allocations)
        DeviceClaim.objects.bulk_create(self.claims)


def start(given: Start, bound: Bound, kind: str, message: str = "") -> None:
    """In the caller's transaction, with the workload's row locked. What waited begins a new run."""
    workload = given.workload
    bound.started.append(workload)
    ranks: dict[tuple[str, int], int] = {}
    if workload.phase in (Phase.PENDING, Phase.RESERVED):
        _begin_run(given, kind, message or said(given.places))
    else:
        ranks = _ranks_so_far(workload, bound)
    _bind(given, bound, ranks)


def _ranks_so_far(workload: Workload, bound: Bound) -> dict[tuple[str, int], int]:
    """Who takes the place of a replica that was lost, or shrunk away, takes its rank."""
    before = Pod.objects.filter(workload=workload, run=workload.run)
    ranks = {(role, index): rank for role, index, rank in before.values_list("role", "index", "rank")}
    mine = [pod for pod in bound.pods if pod.workload_id == workload.pk]
    return ranks | {(pod.role, pod.index): pod.rank for pod in mine}


def said(places: Sequence[Place]) -> str:
    nodes = sorted({step.node for step in places})
    milli = sum(step.milli * len(step.devices) for step in places)
    where = nodes[0] if len(nodes) == 1 else counted(len(nodes), "node")
    return f"{counted(len(places), 'pod')} with {amount('gpu', milli)} on {where}."


def _begin_run(given: Start, kind: str, message: str) -> None:
    workload, pool = given.workload, given.nodes[given.places[0].node].pool
    columns: dict[str, Any] = {
        "run": workload.run + 1,
        "pool_id": pool.pk,
        "rendezvous": None if given.meeting is None else dict(given.meeting),
        "started_at": None,
        "exit_code": None,
        "stale_since": None,
        "backoff_until": None,
        "explanation": None,
        "explained_at": None,
    }
    data = {"pool": pool.name, "run": columns["run"], "kind": kind, "cycle": given.cycle}
    moved = move(
        workload,
        expected=[workload.phase],
        to=Phase.STARTING,
        reason="Placed",
        message=message,
        actor=ACTOR,
        now=given.now,
        data=data,
        **columns,
    )
    assert moved, f"{workload} was locked as {workload.phase}"
    workload.phase = Phase.STARTING
    for name, value in columns.items():
        setattr(workload, name, value)


def _bind(given: Start, bound: Bound, ranks: dict[tuple[str, int], int]) -> None:
    for step in _in_order(given.places, given.meaning):
        rank = ranks.setdefault((step.role, step.index), max(ranks.values(), default=-1) + 1)
        request, node = given.meaning.roles[step.role].request, given.nodes[step.node]
        pod = Pod(
            workload=given.workload,
            role=step.role,
            index=step.index,
            run=given.workload.run,
            rank=rank,
            node=node,
            since=given.now,
            created_at=given.now,
        )
        allocation = Allocation(
            pod=pod,
            node=node,
            cycle_id=given.cycle,
            devices=list(step.devices),
            gpu_milli=step.milli if step.devices else 0,
            cpu_milli=request.cpu,
            memory_mib=request.memory_mib,
            bound_at=given.now,
        )
        bound.pods.append(pod)
        bound.allocations.append(allocation)
        bound.claims += [
            DeviceClaim(allocation=allocation, node=node, device=device, milli=step.milli)
            for device in step.devices
        ]


def _in_order(places: Iterable[Place], meaning: Meaning) -> list[Place]:
    """By role as it was written, then by index: the order of ranks."""
    position = {name: i for i, name in enumerate(meaning.roles)}
    return sorted(places, key=lambda step: (position[step.role], step.index))
