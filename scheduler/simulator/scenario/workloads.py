"""Read a scenario's workloads and pods."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from berth.core.problems import Problem, closest_match, format_value, suggest
from berth.core.wording.words import format_count
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.from_spec import to_timestamp, with_avoided_nodes, workload_from_spec
from scheduler.engine.model import Node, Pod, PodState, Pool, Reservation, Role, Workload
from scheduler.simulator.scenario.devices import RESERVABLE_STATES, DeviceAllocator, device_share_milli
from scheduler.simulator.scenario.errors import ScenarioError
from scheduler.simulator.scenario.schema import PodDocument, ScenarioDocument, ScenarioWorkload

MAX_SUGGESTIONS = 5
Item = TypeVar("Item")


def read_workloads(
    document: ScenarioDocument, pools: tuple[Pool, ...], nodes: tuple[Node, ...], now: int
) -> tuple[Workload, ...]:
    all_pools = tuple(pool.name for pool in pools)
    podless = [_build_workload(spec, all_pools, now) for spec in document.workloads]
    allocator = DeviceAllocator(nodes, {pool.name: pool.device_strategy for pool in pools})
    pods: dict[tuple[int, int], Pod] = {}
    # Allocate the devices that the file lists first, and then choose devices for the other pods.
    for named in (True, False):
        for number, spec in enumerate(document.workloads):
            for place, pod in enumerate(spec.pods):
                if (pod.devices is not None) is named:
                    at = f"workloads[{number}].pods[{place}]"
                    pods[number, place] = _place_pod(at, pod, podless[number], allocator, now)
    return tuple(
        _with_pods(number, spec, workload, [pods[number, place] for place in range(len(spec.pods))])
        for number, (workload, spec) in enumerate(zip(podless, document.workloads, strict=True))
    )


def read_reservations(
    document: ScenarioDocument, workloads: tuple[Workload, ...], nodes: tuple[Node, ...]
) -> tuple[Reservation, ...]:
    by_name = {workload.name: workload for workload in workloads}
    machines = {node.name: node for node in nodes}
    reservations = []
    for number, spec in enumerate(document.reservations):
        at = f"reservations[{number}]"
        workload = _look_up_by_name(f"{at}.workload", "workload", spec.workload, by_name)
        node = _look_up_by_name(f"{at}.node", "node", spec.node, machines)
        role = _find_role(f"{at}.role", spec.role, workload)
        milli = device_share_milli(node, role.request)
        if len(spec.devices) != role.request.devices or milli is None:
            raise _scenario_error(
                f"{at}.devices", "does not match the role's request", format_value(list(spec.devices))
            )
        expires = None if spec.expires is None else to_timestamp(spec.expires)
        reservations.append(
            Reservation(workload.name, role.name, spec.index, node.name, spec.devices, milli, expires)
        )
    return tuple(reservations)


def _build_workload(spec: ScenarioWorkload, all_pools: tuple[str, ...], now: int) -> Workload:
    workload = workload_from_spec(spec)
    return replace(
        workload,
        tree=with_avoided_nodes(workload.tree, sorted(spec.avoided_nodes)),
        pools=spec.pools or all_pools,
        submitted=now if spec.submitted is None else to_timestamp(spec.submitted),
        runtime_seconds=spec.runtime_seconds,
        started=_optional_timestamp(spec.started),
        last_checkpoint=_optional_timestamp(spec.last_checkpoint),
        preemptions=spec.preemptions,
        restarts=spec.restarts,
        backoff_until=_optional_timestamp(spec.backoff_until),
        stale_since=_optional_timestamp(spec.stale_since),
        suspended=spec.suspended,
        misconfigured=spec.misconfigured,
        awaits_code=spec.awaits_code,
    )


def _optional_timestamp(moment: datetime | None) -> int | None:
    return None if moment is None else to_timestamp(moment)


def _place_pod(at: str, spec: PodDocument, workload: Workload, allocator: DeviceAllocator, now: int) -> Pod:
    state = PodState(spec.state)
    role = _find_role(f"{at}.role", spec.role, workload)
    index = -1 if spec.index is None else spec.index
    started = _optional_timestamp(spec.started)
    if started is None:
        started = workload.started if workload.started is not None else min(now, workload.submitted)
    if state is PodState.COMPLETED:
        return Pod(role.name, index, spec.node or "", spec.devices or (), 0, state, started)
    if spec.node is None:
        raise _scenario_error(f"{at}.node", "missing", "", "the pod's node")
    node = _look_up_by_name(f"{at}.node", "node", spec.node, allocator.nodes)
    if node.pool not in workload.pools:
        allowed = f"a node of {', '.join(workload.pools)}"
        raise _scenario_error(
            f"{at}.node", "is in a pool that the workload does not allow", format_value(node.name), allowed
        )
    devices = spec.devices
    if devices is None:
        devices = allocator.choose(node, state, role.request)
        if len(devices) < role.request.devices:
            requested = format_count(role.request.devices, "GPU")
            allowed = f"{format_count(node.gpus, 'GPU')} for all pods on the node"
            raise _scenario_error(
                f"{at}.node", f"requests more GPUs than {node.name} has", requested, allowed
            )
    if problem := allocator.allocate(at, node, state, devices, role.request):
        raise ScenarioError([problem])
    return Pod(
        role.name, index, node.name, devices, device_share_milli(node, role.request) or 0, state, started
    )


def _with_pods(number: int, spec: ScenarioWorkload, podless: Workload, pods: list[Pod]) -> Workload:
    """Add the pods to the workload. A pod without an index gets the lowest free index."""
    used_indices = {(pod.role, pod.index) for pod in pods}
    named: set[tuple[str, int]] = set()
    placed: list[Pod] = []
    for place, parsed in enumerate(pods):
        index = parsed.index
        if index < 0:
            index = next(i for i in range(len(used_indices) + 1) if (parsed.role, i) not in used_indices)
        pod = replace(parsed, index=index)
        used_indices.add((pod.role, index))
        if pod.state not in RESERVABLE_STATES:
            if (pod.role, pod.index) in named:
                at = f"workloads[{number}].pods[{place}].index"
                raise _scenario_error(at, "is listed twice", f"{pod.role} {pod.index}")
            named.add((pod.role, pod.index))
        placed.append(pod)
    starts = [pod.started for pod in placed if pod.state is PodState.RUNNING]
    started = podless.started
    if "started" not in spec.model_fields_set and starts:
        started = min(starts)
    return replace(podless, pods=tuple(placed), started=started)


def _find_role(path: str, name: str | None, workload: Workload) -> Role:
    roles = {role.name: role for role in leaf_roles(workload.tree)}
    if name is None and len(roles) == 1:
        return next(iter(roles.values()))
    if name is None:
        raise _scenario_error(path, "missing", "", ", ".join(roles))
    return _look_up_by_name(path, "role", name, roles)


def _look_up_by_name(path: str, kind: str, name: str, by_name: Mapping[str, Item]) -> Item:
    if name not in by_name:
        near = closest_match(name, by_name)
        allowed = suggest(name, [near] if near else sorted(by_name)[:MAX_SUGGESTIONS])
        raise _scenario_error(path, f"no such {kind}", format_value(name), allowed)
    return by_name[name]


def _scenario_error(path: str, message: str, spec: str, allowed: str = "") -> ScenarioError:
    return ScenarioError([Problem(path, message, spec, allowed)])
