"""Read the workloads and pods of a scenario."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from berth.core.problems import Problem, nearest, shown, suggestion
from berth.core.words import counted
from scheduler.engine.board.gang import roles_of
from scheduler.engine.from_spec import seconds_of, workload_from_spec
from scheduler.engine.model import Node, Pod, PodState, Pool, Reservation, Role, Workload
from scheduler.simulator.scenario.devices import PROMISED_OVER, Seats, milli_on
from scheduler.simulator.scenario.errors import ScenarioError
from scheduler.simulator.scenario.schema import PodDocument, ScenarioDocument, ScenarioWorkload

SOME = 5
Named = TypeVar("Named")


def workloads_of(
    document: ScenarioDocument, pools: tuple[Pool, ...], nodes: tuple[Node, ...], now: int
) -> tuple[Workload, ...]:
    every = tuple(pool.name for pool in pools)
    bare = [_workload(spec, every, now) for spec in document.workloads]
    seats = Seats(nodes, {pool.name: pool.device_strategy for pool in pools})
    pods: dict[tuple[int, int], Pod] = {}
    # Allocate devices named in the file first, then choose the others.
    for named in (True, False):
        for number, spec in enumerate(document.workloads):
            for place, pod in enumerate(spec.pods):
                if (pod.devices is not None) is named:
                    at = f"workloads[{number}].pods[{place}]"
                    pods[number, place] = _place_pod(at, pod, bare[number], seats, now)
    return tuple(
        _with_pods(number, spec, workload, [pods[number, place] for place in range(len(spec.pods))])
        for number, (workload, spec) in enumerate(zip(bare, document.workloads, strict=True))
    )


def reservations_of(
    document: ScenarioDocument, workloads: tuple[Workload, ...], nodes: tuple[Node, ...]
) -> tuple[Reservation, ...]:
    by_name = {workload.name: workload for workload in workloads}
    machines = {node.name: node for node in nodes}
    reservations = []
    for number, spec in enumerate(document.reservations):
        at = f"reservations[{number}]"
        workload = _named(f"{at}.workload", "workload", spec.workload, by_name)
        node = _named(f"{at}.node", "node", spec.node, machines)
        role = _role(f"{at}.role", spec.role, workload)
        milli = milli_on(node, role.request)
        if len(spec.devices) != role.request.devices or milli is None:
            raise _refusal(
                f"{at}.devices", "does not match the request of the role", shown(list(spec.devices))
            )
        expires = None if spec.expires is None else seconds_of(spec.expires)
        reservations.append(
            Reservation(workload.name, role.name, spec.index, node.name, spec.devices, milli, expires)
        )
    return tuple(reservations)


def _workload(spec: ScenarioWorkload, every: tuple[str, ...], now: int) -> Workload:
    return workload_from_spec(
        spec,
        pools=spec.pools or every,
        submitted=now if spec.submitted is None else seconds_of(spec.submitted),
        runtime_seconds=spec.runtime_seconds,
        started=_when(spec.started),
        last_checkpoint=_when(spec.last_checkpoint),
        preemptions=spec.preemptions,
        restarts=spec.restarts,
        backoff_until=_when(spec.backoff_until),
        stale_since=_when(spec.stale_since),
        suspended=spec.suspended,
        misconfigured=spec.misconfigured,
    )


def _when(moment: datetime | None) -> int | None:
    return None if moment is None else seconds_of(moment)


def _place_pod(at: str, spec: PodDocument, workload: Workload, seats: Seats, now: int) -> Pod:
    state = PodState(spec.state)
    role = _role(f"{at}.role", spec.role, workload)
    index = -1 if spec.index is None else spec.index
    started = _when(spec.started)
    if started is None:
        started = workload.started if workload.started is not None else min(now, workload.submitted)
    if state is PodState.COMPLETED:
        return Pod(role.name, index, spec.node or "", spec.devices or (), 0, state, started)
    if spec.node is None:
        raise _refusal(f"{at}.node", "missing", "", "the node of the pod")
    node = _named(f"{at}.node", "node", spec.node, seats.nodes)
    if node.pool not in workload.pools:
        allowed = f"a node of {', '.join(workload.pools)}"
        raise _refusal(
            f"{at}.node", "is in a pool that the workload does not request", shown(node.name), allowed
        )
    devices = spec.devices
    if devices is None:
        devices = seats.choose(node, state, role.request)
        if len(devices) < role.request.devices:
            requested = counted(role.request.devices, "GPU")
            allowed = f"{counted(node.gpus, 'GPU')} for all pods on the node"
            raise _refusal(f"{at}.node", f"more GPUs than {node.name} holds", requested, allowed)
    if problem := seats.take(at, node, state, devices, role.request):
        raise ScenarioError([problem])
    return Pod(role.name, index, node.name, devices, milli_on(node, role.request) or 0, state, started)


def _with_pods(number: int, spec: ScenarioWorkload, bare: Workload, pods: list[Pod]) -> Workload:
    """Add the pods to the workload.

    Pods without an index get the lowest free index. Two live pods must not have the same index.
    """
    used_indices = {(pod.role, pod.index) for pod in pods}
    named: set[tuple[str, int]] = set()
    placed: list[Pod] = []
    for place, parsed in enumerate(pods):
        index = parsed.index
        if index < 0:
            index = next(i for i in range(len(used_indices) + 1) if (parsed.role, i) not in used_indices)
        pod = replace(parsed, index=index)
        used_indices.add((pod.role, index))
        if pod.state not in PROMISED_OVER:
            if (pod.role, pod.index) in named:
                at = f"workloads[{number}].pods[{place}].index"
                raise _refusal(at, "is listed twice", f"{pod.role} {pod.index}")
            named.add((pod.role, pod.index))
        placed.append(pod)
    standing = [pod.started for pod in placed if pod.state is PodState.RUNNING]
    started = bare.started
    if "started" not in spec.model_fields_set and standing:
        started = min(standing)
    return replace(bare, pods=tuple(placed), started=started)


def _role(path: str, name: str | None, workload: Workload) -> Role:
    roles = {role.name: role for role in roles_of(workload.tree)}
    if name is None and len(roles) == 1:
        return next(iter(roles.values()))
    if name is None:
        raise _refusal(path, "missing", "", ", ".join(roles))
    return _named(path, "role", name, roles)


def _named(path: str, kind: str, name: str, by_name: Mapping[str, Named]) -> Named:
    if name not in by_name:
        near = nearest(name, by_name)
        allowed = suggestion(name, [near] if near else sorted(by_name)[:SOME])
        raise _refusal(path, f"no such {kind}", shown(name), allowed)
    return by_name[name]


def _refusal(path: str, message: str, spec: str, allowed: str = "") -> ScenarioError:
    return ScenarioError([Problem(path, message, spec, allowed)])
