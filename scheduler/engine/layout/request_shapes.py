"""Group pending gangs with identical requests."""

from collections.abc import Hashable

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardGroup, BoardRole, Gang
from scheduler.engine.board.matching import node_constraints


def request_shape(gang: Gang) -> Hashable:
    """Return a key shared by gangs with identical requests, or a unique key for a gang with pods."""
    if gang.has_pods:
        return gang.name
    if gang.simple and len(gang.parts) == 1:
        return _role_shape(gang.parts[0])
    return _group_shape(gang.root)


def request_key(board: Board, gang: Gang) -> Hashable:
    """Return a compact key equivalent to `request_shape`: a number, or the gang's name if it has pods."""
    result = request_shape(gang)
    if gang.has_pods:
        return result
    static_cache = board.nodes.static_cache
    number: int = static_cache.setdefault(("request", result), len(static_cache))
    return number


def _group_shape(section: BoardGroup) -> Hashable:
    return (
        section.need,
        section.topology,
        tuple(
            _role_shape(child) if isinstance(child, BoardRole) else _group_shape(child)
            for child in section.children
        ),
    )


def _role_shape(part: BoardRole) -> Hashable:
    """Return a key for a role's name, request and constraints.

    It does not depend on the nodes that match now.
    """
    role = part.role
    return (
        role.name, role.min - part.completed, role.max, part.request, node_constraints(role),
        role.spread_per_node, role.topology, len(part.used), part.project,
    )  # fmt: skip
