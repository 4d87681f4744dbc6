"""Read the workloads and pods of a scenario."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from berth.core.problems import Problem, nearest, shown
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
    bare = [_workload(given, every, now) for given in document.workloads]
    seats = Seats(nodes, {pool.name: pool.device_strategy for pool in pools})
    pods: dict[tuple[int, int], Pod] = {}
    # Devices that the file names are taken first; then those it left to us.
    for named in (True, False):
        for number, given in enumerate(document.workloads):
            for place, pod in enumerate(given.pods):
                if (pod.devices is not None) is named:
                    at = f"workloads[{number}].pods[{place}]"
                    pods[number, place] = _seated(at, pod, bare[number], seats, now)
    return tuple(
        _with_pods(number, given, workload, [pods[number, place] for place in range(len(given.pods))])
        for number, (workload, given) in enumerate(zip(bare, document.workloads, strict=True))
    )


def reservations_of(
    document: ScenarioDocument, workloads: tuple[Workload, ...], nodes: tuple[Node, ...]
) -> tuple[Reservation, ...]:
    by_name = {workload.name: workload for workload in workloads}
    machines = {node.name: node for node in nodes}
    found = []
    for number, given in enumerate(document.reservations):
        at = f"reservations[{number}]"
        workload = _named(f"{at}.workload", "workload", given.workload, by_name)
        node = _named(f"{at}.node", "node", given.node, machines)
        role = _role(f"{at}.role", given.role, workload)
        milli = milli_on(node, role.request)
        if len(given.devices) != role.request.devices or milli is None:
            raise _refusal(f"{at}.devices", "not what the role asks for", shown(list(given.devices)))
        expires = None if given.expires is None else seconds_of(given.expires)
        found.append(
            Reservation(workload.name, role.name, given.index, node.name, given.devices, milli, expires)
        )
    return tuple(found)


def _workload(given: ScenarioWorkload, every: tuple[str, ...], now: int) -> Workload:
    return workload_from_spec(
        given,
        pools=given.pools or every,
        submitted=now if given.submitted is None else seconds_of(given.submitted),
        runtime_seconds=given.runtime_seconds,
        started=_when(given.started),
        last_checkpoint=_when(given.last_checkpoint),
        preemptions=given.preemptions,
        restarts=given.restarts,
        backoff_until=_when(given.backoff_until),
        stale_since=_when(given.stale_since),
        suspended=given.suspended,
        misconfigured=given.misconfigured,
    )


def _when(moment: datetime | None) -> int | None:
    return None if moment is None else seconds_of(moment)


def _seated(at: str, given: PodDocument, workload: Workload, seats: Seats, now: int) -> Pod:
    state = PodState(given.state)
    role = _role(f"{at}.role", given.role, workload)
    index = -1 if given.index is None else given.index
    started = _when(given.started)
    if started is None:
        started = workload.started if workload.started is not None else min(now, workload.submitted)
    if state is PodState.COMPLETED:
        return Pod(role.name, index, given.node or "", given.devices or (), 0, state, started)
    if given.node is None:
        raise _refusal(f"{at}.node", "missing", "", "the node it stands on")
    node = _named(f"{at}.node", "node", given.node, seats.nodes)
    if node.pool not in workload.pools:
        allowed = f"a node of {', '.join(workload.pools)}"
        raise _refusal(
            f"{at}.node", "stands in a pool the workload does not ask for", shown(node.name), allowed
        )
    devices = given.devices
    if devices is None:
        devices = seats.choose(node, state, role.request)
        if len(devices) < role.request.devices:
            asked = counted(role.request.devices, "GPU")
            allowed = f"{counted(node.gpus, 'GPU')} for all that stands there"
            raise _refusal(f"{at}.node", f"more GPUs than {node.name} holds", asked, allowed)
    if problem := seats.take(at, node, state, devices, role.request):
        raise ScenarioError([problem])
    return Pod(role.name, index, node.name, devices, milli_on(node, role.request) or 0, state, started)


def _with_pods(number: int, given: ScenarioWorkload, bare: Workload, pods: list[Pod]) -> Workload:
    """Replicas without an index get the lowest that is free; no two living ones share one."""
    taken = {(pod.role, pod.index) for pod in pods}
    named: set[tuple[str, int]] = set()
    placed: list[Pod] = []
    for place, seated in enumerate(pods):
        index = seated.index
        if index < 0:
            index = next(i for i in range(len(taken) + 1) if (seated.role, i) not in taken)
        pod = replace(seated, index=index)
        taken.add((pod.role, index))
        if pod.state not in PROMISED_OVER:
            if (pod.role, pod.index) in named:
                at = f"workloads[{number}].pods[{place}].index"
                raise _refusal(at, "stands here twice", f"{pod.role} {pod.index}")
            named.add((pod.role, pod.index))
        placed.append(pod)
    standing = [pod.started for pod in placed if pod.state is PodState.RUNNING]
    started = bare.started
    if "started" not in given.model_fields_set and standing:
        started = min(standing)
    return replace(bare, pods=tuple(placed), started=started)


def _role(path: str, name: str | None, workload: Workload) -> Role:
    roles = {role.name: role for role in roles_of(workload.tree)}
    if name is None and len(roles) == 1:
        return next(iter(roles.values()))
    if name is None:
        raise _refusal(path, "missing", "", ", ".join(roles))
    return _named(path, "role", name, roles)


def _named(path: str, kind: str, name: str, known: Mapping[str, Named]) -> Named:
    if name not in known:
        meant = nearest(name, known)
        allowed = f"{meant}?" if meant else ", ".join(sorted(known)[:SOME])
        raise _refusal(path, f"no such {kind}", shown(name), allowed)
    return known[name]


def _refusal(path: str, message: str, given: str, allowed: str = "") -> ScenarioError:
    return ScenarioError([Problem(path, message, given, allowed)])
