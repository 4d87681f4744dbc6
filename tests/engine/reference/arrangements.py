"""Brute-force search for arrangements of one gang."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from berth.core.values.amounts import MILLI
from scheduler.engine.board.matching import matches
from scheduler.engine.model import Node, Role, RoleGroup

LEVELS = ("zone", "rack")
# Groups and roles that share a domain, each with its topology level, from the outside in.
Scopes: TypeAlias = tuple[tuple[str, str], ...]
# Replicas placed so far, by role and node.
PerNode: TypeAlias = dict[tuple[str, str], int]


@dataclass(slots=True)
class _FreeNode:
    node: Node
    free: list[int]
    cpu: int


def has_arrangement(nodes: Sequence[Node], tree: RoleGroup) -> bool:
    """Return whether the whole tree fits on empty nodes. A group requires `need` of its children."""
    left = [_FreeNode(node, [MILLI] * node.gpus, node.cpu) for node in nodes]
    replicas = list(_replicas(tree, ()))
    return _fit(left, replicas, 0, {}, {})


def _replicas(group: RoleGroup, around: Scopes) -> Iterator[tuple[Role, Scopes]]:
    scopes = (*around, *_scope(group))
    for child in group.children:
        if isinstance(child, Role):
            for _ in range(child.min):
                yield child, (*scopes, *_scope(child))
        else:
            yield from _replicas(child, scopes)


def _scope(node: RoleGroup | Role) -> Scopes:
    level = node.topology.required if node.topology else None
    return ((f"{type(node).__name__}:{node.name}", level),) if level else ()


def _fit(
    left: list[_FreeNode],
    replicas: list[tuple[Role, Scopes]],
    which: int,
    domains: dict[str, tuple[str, ...] | None],
    on: PerNode,
) -> bool:
    if which == len(replicas):
        return True
    role, scopes = replicas[which]
    for place in left:
        if not _can_run(place, role, on):
            continue
        here = {name: _domain(place.node, level) for name, level in scopes}
        if None in here.values() or any(domains.get(name, value) != value for name, value in here.items()):
            continue
        fresh = {name: value for name, value in here.items() if name not in domains}
        for devices in _choices(place, role):
            _take(place, role, devices, -1, on)
            if _fit(left, replicas, which + 1, {**domains, **fresh}, on):
                _take(place, role, devices, 1, on)
                return True
            _take(place, role, devices, 1, on)
    return False


def _can_run(place: _FreeNode, role: Role, on: PerNode) -> bool:
    apart = role.spread_per_node
    return (
        matches(role, place.node)
        and place.cpu >= role.request.cpu
        and (apart is None or on.get((role.name, place.node.name), 0) < apart)
    )


def _domain(node: Node, level: str) -> tuple[str, ...] | None:
    path = LEVELS[: LEVELS.index(level) + 1]
    return tuple(node.labels.get(key, "") for key in path) if path[-1] in node.labels else None


def _milli(node: Node, role: Role) -> int:
    memory_mib = role.request.gpu_memory_mib
    return -(-MILLI * memory_mib // node.gpu_memory_mib) if memory_mib else role.request.gpu


def _choices(place: _FreeNode, role: Role) -> list[tuple[int, ...]]:
    """Return device combinations. Among devices with equal free shares, only one is tried."""
    count, milli = role.request.devices, _milli(place.node, role) if role.request.devices else 0
    able = [device for device, has in enumerate(place.free) if has >= milli]
    choices: dict[tuple[int, ...], tuple[int, ...]] = {}
    for chosen in combinations(able, count):
        choices.setdefault(tuple(sorted(place.free[device] for device in chosen)), chosen)
    return list(choices.values())


def _take(place: _FreeNode, role: Role, devices: tuple[int, ...], sign: int, on: PerNode) -> None:
    place.cpu += sign * role.request.cpu
    on[role.name, place.node.name] = on.get((role.name, place.node.name), 0) - sign
    for device in devices:
        place.free[device] += sign * _milli(place.node, role)
