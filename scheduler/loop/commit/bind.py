"""Create a workload's pods with their allocations, and start its run."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from berth.core.spec import WorkloadSpec
from berth.core.wording.words import format_amount, format_count
from berth.db.writes.bulk_rows import insert_rows
from berth.db.writes.new_rows import new_row
from pools.engine.pod_limits import resolve_limits
from pools.engine.volumes import usable_volumes
from pools.models import Node
from projects.models import Event, Phase, Pod, PodOutputs, PodState, Workload
from projects.services.events import record_all
from projects.services.workloads.phase_transitions import PhaseTransition, change_phases, delete_reservations
from scheduler.engine.plan import Place
from scheduler.loop.observe.specs import ParsedSpec
from scheduler.models import Allocation, DeviceClaim, Eviction, Reservation

ACTOR = "scheduler"
STOPPABLE_STATES = (PodState.STARTING, PodState.RUNNING)


@dataclass(frozen=True, slots=True)
class StartCommand:
    """Decision to start or scale up one workload."""

    workload: Workload
    spec: ParsedSpec
    places: Sequence[Place]
    nodes: Mapping[str, Node]
    now: datetime
    cycle: int | None
    # Ranks already assigned to replicas of the run.
    ranks: dict[tuple[str, int], int] = field(default_factory=dict)
    rendezvous: Mapping[str, str | int] | None = None
    has_reservations: bool = True  # True if the workload may have reservations; its start replaces them


@dataclass(slots=True)
class NewRows:
    """Rows that a commit inserts and updates in a constant number of statements."""

    now: datetime
    transitions: dict[uuid.UUID, PhaseTransition] = field(default_factory=dict)  # keyed by workload ID
    events: list[Event] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    stopped: dict[str, list[uuid.UUID]] = field(default_factory=dict)  # stopped pods by reason
    reserved: set[uuid.UUID] = field(default_factory=set)  # workloads whose old reservations are replaced
    newly_reserved: set[uuid.UUID] = field(default_factory=set)  # workloads with new reservations
    reservations: list[Reservation] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    outputs: list[PodOutputs] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    claims: list[DeviceClaim] = field(default_factory=list)
    fulfilled: list[uuid.UUID] = field(default_factory=list)  # started workloads with reservations

    def add_transition(self, transition: PhaseTransition) -> None:
        """Add a locked workload's phase change."""
        if transition.workload.pk in self.transitions:
            # One statement can change each row only once.
            self.write()
        self.transitions[transition.workload.pk] = transition
        workload: Any = transition.workload
        workload.phase = transition.to
        for name, value in transition.columns.items():
            setattr(workload, name, value)

    def cancel_reservation(self, workload: Workload, reason: str, message: str, cycle: int | None) -> None:
        """Delete a locked workload's reservations.

        A workload that had only reservations becomes pending again.
        """
        if workload.pk in self.reserved:
            self.write()  # the reservations may not have been inserted yet
        self.reserved.add(workload.pk)
        if workload.phase == Phase.RESERVED:
            data = {"cycle": cycle}
            self.add_transition(
                PhaseTransition(workload, [Phase.RESERVED], Phase.PENDING, reason, message, data)
            )

    def write(self) -> None:
        """Write the collected changes, then clear them."""
        # Phase changes can delete reservations, so they precede new ones.
        made = change_phases(list(self.transitions.values()), actor=ACTOR, now=self.now)
        assert len(made) == len(self.transitions), "a locked row cannot leave its phase"
        if self.events:
            record_all(self.events)
        insert_rows(self.evictions)
        for reason, pods in self.stopped.items():
            Pod.objects.filter(pk__in=pods, state__in=STOPPABLE_STATES).update(
                state=PodState.STOPPING, stop_reason=reason, since=self.now
            )
        if self.reserved:
            delete_reservations([*self.reserved])
        insert_rows(self.reservations)
        if self.fulfilled:
            delete_reservations(self.fulfilled)
        insert_rows(self.pods)
        insert_rows(self.outputs)
        insert_rows(self.allocations)
        for claim in self.claims:
            claim.allocation_id = claim.allocation.pk  # the insertion has set the allocation's key
        insert_rows(self.claims)
        for rows in (
            self.transitions, self.events, self.evictions, self.stopped, self.reserved, self.reservations,
            self.pods, self.outputs, self.allocations, self.claims, self.fulfilled,
        ):  # fmt: skip
            rows.clear()


def start_or_scale_up(order: StartCommand, rows: NewRows, kind: str, message: str = "") -> None:
    """Start or scale up a workload in the caller's transaction.

    A pending workload begins a new run.
    """
    workload = order.workload
    if order.has_reservations:
        rows.fulfilled.append(workload.pk)
    if workload.phase in (Phase.PENDING, Phase.RESERVED):
        _begin_run(order, rows, kind, message or describe_placement(order.places))
    _bind_pods(order, rows)


def describe_placement(places: Sequence[Place]) -> str:
    nodes = sorted({step.node for step in places})
    milli = sum(step.milli * len(step.devices) for step in places)
    where = nodes[0] if len(nodes) == 1 else format_count(len(nodes), "node")
    return f"{format_count(len(places), 'pod')} with {format_amount('gpu', milli)} on {where}."


def _begin_run(order: StartCommand, rows: NewRows, kind: str, message: str) -> None:
    workload, pool = order.workload, order.nodes[order.places[0].node].pool
    columns: dict[str, Any] = {
        "run": workload.run + 1,
        "pool_id": pool.pk,
        "rendezvous": None if order.rendezvous is None else dict(order.rendezvous),
        "started_at": None,
        "exit_code": None,
        "stale_since": None,
        "backoff_until": None,
        "start_refusal": "",
        "explanation": None,
        "explained_at": None,
    }
    data = {"pool": pool.name, "run": columns["run"], "kind": kind, "cycle": order.cycle}
    rows.add_transition(
        PhaseTransition(workload, [workload.phase], Phase.STARTING, "Placed", message, data, columns)
    )


def _bind_pods(order: StartCommand, rows: NewRows) -> None:
    limits: dict[str, dict[str, Any]] = {}
    ranks = order.ranks
    next_rank = max(ranks.values(), default=-1) + 1
    for step in _sort_by_rank(order.places, order.spec):
        rank = ranks.setdefault((step.role, step.index), next_rank)
        next_rank = max(next_rank, rank + 1)
        request, node = order.spec.roles[step.role].request, order.nodes[step.node]
        if step.role not in limits:
            limits[step.role] = _role_limits(order, step.role, node)
        pod = new_row(
            Pod,
            workload_id=order.workload.pk,
            role=step.role,
            index=step.index,
            run=order.workload.run,
            rank=rank,
            node_id=node.pk,
            since=order.now,
            created_at=order.now,
            limits=limits[step.role],
        )
        allocation = new_row(
            Allocation,
            pod_id=pod.pk,
            node_id=node.pk,
            devices=list(step.devices),
            gpu_milli=step.milli if step.devices else 0,
            cpu_milli=request.cpu,
            memory_mib=request.memory_mib,
            bound_at=order.now,
        )
        rows.pods.append(pod)
        if order.spec.spec is not None:
            rows.outputs += _output_rows(order.spec.spec, order.workload, pod, node)
        rows.allocations.append(allocation)
        rows.claims += [
            DeviceClaim(allocation=allocation, node=node, device=device, milli=step.milli)
            for device in step.devices
        ]


def _output_rows(spec: WorkloadSpec, workload: Workload, pod: Pod, node: Node) -> Iterator[PodOutputs]:
    if spec.outputs:
        yield PodOutputs(pod=pod, paths=list(spec.outputs))
    if spec.volumes:
        volumes = usable_volumes(node.pool.volumes, workload.project.name)
        for mount in spec.volumes:
            volume = volumes.get(mount.name)
            if volume is not None and volume.is_synced and volume.is_writable and not mount.read_only:
                yield PodOutputs(pod=pod, volume=volume.name, source=volume.cache)


def _role_limits(order: StartCommand, role: str, node: Node) -> dict[str, Any]:
    roles = order.spec.spec.all_roles if order.spec.spec else ()
    declared = next(each for each in roles if each.name == role)
    return resolve_limits(declared, node.pool.default_limits).to_pod_columns()


def _sort_by_rank(places: Iterable[Place], spec: ParsedSpec) -> list[Place]:
    """Sort placements by the role's position in the document, then by index."""
    position = {name: i for i, name in enumerate(spec.roles)}
    return sorted(places, key=lambda step: (position[step.role], step.index))
