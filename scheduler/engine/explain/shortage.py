"""Explain why a gang does not fit: no node accepts it, or capacity is insufficient or fragmented."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from berth.core.wording.words import format_amount
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, Gang, ReplicaRequest, arrangements
from scheduler.engine.board.ledger import GPU, KINDS
from scheduler.engine.board.matching import matches, meets_constraints, serves_project
from scheduler.engine.explain.feasible import permanent_obstacle
from scheduler.engine.explain.free import FreeCapacity, fits_without_topology
from scheduler.engine.explain.mismatches import mismatch_numbers
from scheduler.engine.explain.new_nodes import addable_node_count, make_new_nodes
from scheduler.engine.explain.pod_slots import pod_slot_obstacle
from scheduler.engine.model import Role
from scheduler.engine.placement.overcommit import ignoring_limits, may_overcommit
from scheduler.engine.plan import Numbers, Reason

Obstacle = tuple[Reason, Numbers]

_NOUNS = dict(zip(KINDS, ("GPUs", "CPUs", "memory"), strict=True))


def explain_shortage(board: Board, gang: Gang) -> Obstacle:
    """Return the first obstacle that keeps the gang from fitting into free capacity.

    Of several insufficient resources, the scarcest is reported.
    """
    never = permanent_obstacle(board, gang, _cache_key(gang))
    if never is not None:
        return never
    arrangement = next(arrangements(gang))
    unavailable = _nodes_unavailable_obstacle(board, arrangement)
    if unavailable is not None:
        return unavailable
    # A CPU-only workload may start based on its requests, so its requests are compared with free capacity.
    with ignoring_limits(*([gang] if may_overcommit(gang) else [])):
        return _explain_free_capacity(board, gang, FreeCapacity.for_gang(board, gang))


def _explain_free_capacity(board: Board, gang: Gang, free: FreeCapacity) -> Obstacle:
    arrangement, short = free.arrangement, free.short_resources()
    if short:
        return Reason.WAITING_FOR_CAPACITY, capacity_numbers(free, short)
    if not free.usable:
        replicas = sum(need.count for need in arrangement)
        return Reason.WAITING_FOR_CAPACITY, {
            "resource": "replicas", "requested": replicas, "free": 0, "missing": replicas,
        }  # fmt: skip
    if any(need.scopes for need in arrangement) and fits_without_topology(board, gang, arrangement):
        return Reason.TOPOLOGY, _domain_numbers(board, free)
    if trials := board.cycle.placement_attempts.exhausted_attempts(gang):
        return Reason.PLACEMENT_ATTEMPTS_EXHAUSTED, {"attempts": trials, **_fragmentation_numbers(free)}
    return pod_slot_obstacle(board, gang, arrangement) or (Reason.FRAGMENTED, _fragmentation_numbers(free))


def _cache_key(gang: Gang) -> Hashable:
    """Return a cache key for the gang's shortage, or None if no other gang can share the result."""
    request_key = None if gang.group is None else gang.group.request_key
    return None if request_key == gang.name else request_key


def _nodes_unavailable_obstacle(board: Board, arrangement: Arrangement) -> Obstacle | None:
    nodes = board.nodes
    for need in arrangement:
        mask = need.part.mask
        open_now = any(
            (nodes.ready[i] or nodes.booting[i]) and (mask is None or mask[i])
            for i in range(len(nodes.nodes))
        )
        if open_now or (
            addable_node_count(board)
            and any(meets_constraints(need.part.role, n) for n in make_new_nodes(board, 1))
        ):
            continue
        return Reason.NODES_UNAVAILABLE, mismatch_numbers(
            need.part.role, nodes.nodes, project=need.part.project
        )
    return None


def capacity_numbers(free: FreeCapacity, short: Sequence[int]) -> Numbers:
    kind = short[0]
    also = ", ".join(format_amount(free.resource(other), free.missing_amount(other)) for other in short[1:])
    numbers = {
        **free.numbers(kind),
        "missing": free.missing_amount(kind),
        **free.view.unavailable_amounts(kind),
    }
    reserved = _free_amount_on_reserved_nodes(free, kind)
    avoided = _free_amount_on_avoided_nodes(free, kind)
    more: Numbers = {"also": also, "reserved": reserved, "avoided": avoided}
    return numbers | {key: value for key, value in more.items() if value}


def _free_amount_on_avoided_nodes(free: FreeCapacity, kind: int) -> int:
    roles = [need.part.role for need in free.arrangement if need.part.role.avoided_nodes]
    nodes = free.view.nodes
    return sum(
        free.view.free_amount_on_node(i, kind)
        for i, node in enumerate(nodes.nodes if roles else ())
        if nodes.ready[i]
        and any(
            node.name in role.avoided_nodes and matches(_without_avoided_nodes(role), node) for role in roles
        )
    )


def _without_avoided_nodes(role: Role) -> Role:
    return replace(role, avoided_nodes=())


def _free_amount_on_reserved_nodes(free: FreeCapacity, kind: int) -> int:
    parts = [need.part for need in free.arrangement if need.part.project]
    nodes = free.view.nodes
    return sum(
        free.view.free_amount_on_node(i, kind)
        for i, node in enumerate(nodes.nodes if parts else ())
        if nodes.ready[i]
        and any(not serves_project(node, part.project) and matches(part.role, node) for part in parts)
    )


def _fragmentation_numbers(free: FreeCapacity) -> Numbers:
    for need in free.arrangement:
        replicas_by_resource = {
            kind: [free.replicas_on_node(i, need.part, kind) for i in free.usable]
            for kind in KINDS
            if free.replica_amount(need.part, kind)
        }
        fewest, kind = min(
            ((sum(replicas_by_resource[kind]), kind) for kind in replicas_by_resource),
            default=(need.count, GPU),
        )
        if fewest < need.count:
            return {**free.numbers(kind), "missing": 0}
        together = (
            sum(min(times) for times in zip(*replicas_by_resource.values(), strict=True))
            if replicas_by_resource
            else need.count
        )
        if together < need.count:
            return _combined_fragmentation_numbers(free, need, replicas_by_resource)
    return {**free.numbers(free.main_resource()), "missing": 0}


def _combined_fragmentation_numbers(
    free: FreeCapacity, need: ReplicaRequest, replicas_by_resource: Mapping[int, Sequence[int]]
) -> Numbers:
    """Return the numbers for a gang whose resources are available, but not on the same nodes.

    The gang would fit if each resource were considered alone.
    """

    def replicas_without_resource(kind: int) -> list[int]:
        rest = [replicas_by_resource[other] for other in replicas_by_resource if other != kind]
        return [min(times) for times in zip(*rest, strict=True)]

    kind = max(
        replicas_by_resource, key=lambda kind: (min(need.count, sum(replicas_without_resource(kind))), kind)
    )
    on_others = free.restricted_to(
        [i for i, times in zip(free.usable, replicas_without_resource(kind), strict=True) if times]
    )
    rest = " and ".join(_NOUNS[other] for other in replicas_by_resource if other != kind)
    return {
        **on_others.numbers(kind),
        "missing": on_others.missing_amount(kind),
        "beside": rest,
    }


def _domain_numbers(board: Board, free: FreeCapacity) -> Numbers:
    """Return the requested amount, and the largest free amount in any domain at the outermost level."""
    levels = [scope.constraint.required for need in free.arrangement for scope in need.scopes]
    level = next((level for level in levels if level), None)
    kind = free.main_resource()
    domains = board.topology.domains(level).values() if level else ()
    blocks = (free.restricted_to(sorted(domain.intersection(free.usable))).total(kind) for domain in domains)
    return {"level": level, **free.numbers(kind), "biggest_block": max(blocks, default=0)}
