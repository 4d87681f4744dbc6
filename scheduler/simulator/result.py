"""Convert simulation results to data in the `berth.plan/1` format."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from berth.core.values.amounts import MILLI, Amounts, Bounds
from berth.core.wording.blocker_numbers import AMOUNTS
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.model import PodState, Role, Snapshot, Workload
from scheduler.engine.plan import Bundle, Evict, Kind, Numbers, Place, Plan, Rejection
from scheduler.simulator.gangs import ALLOCATED_STATES, RUNNING_STATES, has_pod_in, is_finished

FORMAT = "berth.plan/1"
DISPLAYED_STATES = {
    PodState.STARTING: "running",
    PodState.STUCK: "stopping",
}
PRESENT_STATES = (*RUNNING_STATES, PodState.RESERVED, PodState.COMPLETED)
Document = dict[str, Any]


def build_result(
    cycles: Sequence[Sequence[Document]], after: Snapshot, last: Plan, seconds: float
) -> Document:
    rejections = {rejection.workload: rejection for rejection in last.rejections}
    return {
        "format": FORMAT,
        "cycles": [{"decisions": list(decisions)} for decisions in cycles],
        "workloads": {w.name: _workload_document(w, rejections.get(w.name)) for w in after.workloads},
        "queues": _queue_documents(last),
        "nodes": _node_documents(after),
        "demand": {
            demand.pool: {"nodes_wanted": demand.nodes_wanted, "queued_gpus": demand.queued.gpu / MILLI}
            for demand in last.demand
        },
        "seconds": {"decide": round(seconds, 6)},
    }


def plan_decisions(before: Snapshot, plan: Plan) -> list[Document]:
    """Return each bundle's decisions: first the evictions, then the workload that they make room for."""
    running = {workload.name for workload in before.workloads if has_pod_in(workload, RUNNING_STATES)}
    return [decision for bundle in plan.bundles for decision in _decisions(bundle, running)]


def _decisions(bundle: Bundle, running: set[str]) -> Iterable[Document]:
    rules = {(eviction.workload, eviction.kind): eviction.rule for eviction in bundle.evictions}
    kinds = {eviction.workload: eviction.kind for eviction in bundle.evictions}
    names = dict.fromkeys(step.workload for step in bundle.steps)
    for name in sorted(names, key=lambda name: (name == bundle.workload, list(names).index(name))):
        own_steps = [step for step in bundle.steps if step.workload == name]
        shrinks = (name, Kind.SHRINK) in rules and kinds[name] is not Kind.SHRINK
        for kind, steps in (
            _split_scaled_down_and_moved(own_steps) if shrinks else [(kinds.get(name), own_steps)]
        ):
            if name == bundle.workload and kind is None:
                decision_kind = _decision_kind(bundle, steps, name in running)
            else:
                decision_kind = _eviction_kind(bundle, kind or bundle.kind, steps)
            yield {
                "kind": decision_kind,
                "workload": name,
                "for": None if name == bundle.workload else bundle.workload,
                "pods": _pod_moves(steps),
                "reason": (kind or bundle.kind).value,
                "message": (rules[name, kind] if kind else "") or bundle.message,
            }


def _split_scaled_down_and_moved(
    steps: Sequence[Place | Evict],
) -> Iterable[tuple[Kind, Sequence[Place | Evict]]]:
    placed_again = {(step.role, step.index) for step in steps if isinstance(step, Place)}
    yield Kind.SHRINK, [step for step in steps if (step.role, step.index) not in placed_again]
    yield Kind.CONSOLIDATE, [step for step in steps if (step.role, step.index) in placed_again]


def _decision_kind(bundle: Bundle, steps: Sequence[Place | Evict], was_running: bool) -> str:
    placements = [step for step in steps if isinstance(step, Place)]
    if not placements:
        return bundle.kind.value
    if any(step.reserved for step in placements):
        return Kind.RESERVE.value
    return Kind.GROW.value if was_running or bundle.kind is Kind.GROW else Kind.START.value


def _eviction_kind(bundle: Bundle, kind: Kind, steps: Sequence[Place | Evict]) -> str:
    """Return the kind of eviction. If the bundle places the pod again, the eviction is a move."""
    moved = any(isinstance(step, Place) for step in steps)
    return "move" if moved and bundle.kind is not Kind.CONSOLIDATE else kind.value


def _pod_moves(steps: Sequence[Place | Evict]) -> list[Document]:
    pods: dict[tuple[str, int], Document] = {}
    for step in steps:
        pod = pods.setdefault(
            (step.role, step.index),
            {"role": step.role, "index": step.index, "from": None, "to": None, "devices": []},
        )
        pod["to" if isinstance(step, Place) else "from"] = step.node
        if isinstance(step, Place) or not pod["devices"]:
            pod["devices"] = list(step.devices)
    return list(pods.values())


def _workload_document(workload: Workload, rejection: Rejection | None) -> Document:
    phase = _phase_after_plan(workload)
    is_pending = rejection is not None and phase in ("pending", "reserved", "running")
    milli_gpus = sum(pod.milli * len(pod.devices) for pod in workload.pods if pod.state in ALLOCATED_STATES)
    return {
        "phase": phase,
        "pods": [*_listed_pods(workload), *_missing_pods(workload, phase)],
        "gpus": milli_gpus / MILLI,
        "blockers": [
            {
                "reason": blocker.reason.value,
                "message": blocker.message,
                "numbers": _convert_units(blocker.numbers),
            }
            for blocker in (rejection.blockers if rejection is not None and is_pending else ())
        ],
        "position": rejection.position if rejection is not None and is_pending else None,
    }


def _convert_units(numbers: Numbers) -> Document:
    if numbers.get("resource") not in ("gpu", "cpu"):
        return dict(numbers)
    return {
        key: value / MILLI if key in AMOUNTS and isinstance(value, int) else value
        for key, value in numbers.items()
    }


def _phase_after_plan(workload: Workload) -> str:
    if is_finished(workload):
        return "completed"
    for phase, states in (
        ("running", RUNNING_STATES),
        ("reserved", (PodState.RESERVED,)),
        ("stopping", (PodState.STOPPING, PodState.STUCK)),
    ):
        if has_pod_in(workload, states):
            return phase
    return "pending"


def _listed_pods(workload: Workload) -> list[Document]:
    order = {role.name: place for place, role in enumerate(leaf_roles(workload.tree))}
    return [
        {
            "role": pod.role,
            "index": pod.index,
            "state": DISPLAYED_STATES.get(pod.state, pod.state.value),
            "node": pod.node or None,
            "devices": list(pod.devices),
        }
        for pod in sorted(workload.pods, key=lambda pod: (order.get(pod.role, 0), pod.index, pod.state.value))
    ]


def _missing_pods(workload: Workload, phase: str) -> Iterable[Document]:
    """Yield the replicas that the gang still needs to reach its minimum, except those that are stopping."""
    if phase == "completed":
        return
    for role in leaf_roles(workload.tree):
        pods = [pod for pod in workload.pods if pod.role == role.name]
        listed = {pod.index for pod in pods}
        present = {pod.index for pod in pods if pod.state in PRESENT_STATES}
        free = (index for index in range(role.max + len(present)) if index not in present)
        for index, _ in zip(free, range(role.min - len(present)), strict=False):
            if index not in listed:
                yield {"role": role.name, "index": index, "state": "pending", "node": None, "devices": []}


def _queue_documents(plan: Plan) -> Document:
    queues: Document = {}
    for report in plan.queues:
        queues.setdefault(report.pool, {})[report.queue] = {
            "quota": _amounts_document(report.quota),
            "fair_share": _amounts_document(report.share),
            "allocated": _amounts_document(report.allocated),
            "requested": _amounts_document(report.requested),
            "usage": dict(zip(Amounts._fields, report.usage, strict=True)),
        }
    return queues


def _node_documents(after: Snapshot) -> Document:
    free = {node.name: node.capacity for node in after.nodes}
    for workload in after.workloads:
        requests: Mapping[str, Role] = (
            {role.name: role for role in leaf_roles(workload.tree)} if workload.pods else {}
        )
        for pod in workload.pods:
            if pod.state in ALLOCATED_STATES and pod.node in free:
                request = requests[pod.role].request
                amounts = Amounts(pod.milli * len(pod.devices), request.cpu, request.memory_mib)
                free[pod.node] = free[pod.node].minus(amounts)
    return {node.name: {"free": _free_amounts(free[node.name])} for node in after.nodes}


def _free_amounts(left: Amounts) -> Document:
    return {
        "gpu": max(0, left.gpu) / MILLI,
        "cpu": max(0, left.cpu) / MILLI,
        "memory_mib": max(0, left.memory_mib),
    }


def _amounts_document(amounts: Amounts | Bounds) -> Document:
    return {
        "gpu": None if amounts.gpu is None else amounts.gpu / MILLI,
        "cpu": None if amounts.cpu is None else amounts.cpu / MILLI,
        "memory_mib": amounts.memory_mib,
    }
