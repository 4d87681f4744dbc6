"""Group pending gangs with identical requests."""

from collections.abc import Hashable

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardGroup, BoardRole, Gang
from scheduler.engine.board.matching import node_constraints


def shape(gang: Gang) -> Hashable:
    """Return a key that is equal for gangs with identical requests. A gang with pods has a key of its own."""
    if gang.stands:
        return gang.name
    if gang.simple and len(gang.parts) == 1:
        return _part(gang.parts[0])
    return _section(gang.root)


def request_key(board: Board, gang: Gang) -> Hashable:
    """Return a number that is equal for gangs of one shape and quick to compare."""
    result = shape(gang)
    if gang.stands:
        return result
    lasting = board.nodes.lasting
    number: int = lasting.setdefault(("asks", result), len(lasting))
    return number


def _section(section: BoardGroup) -> Hashable:
    return (
        section.need,
        section.topology,
        tuple(
            _part(child) if isinstance(child, BoardRole) else _section(child) for child in section.children
        ),
    )


def _part(part: BoardRole) -> Hashable:
    """Return a key of a role's constraints.

    The key ignores which nodes match now, because nodes that the pool adds may differ. The key includes the
    role's name, because messages contain the name.
    """
    role = part.role
    return (
        role.name, role.min - part.done, role.max, part.request, node_constraints(role),
        role.spread_per_node, role.topology, len(part.used),
    )  # fmt: skip
