"""Locations of the roles in a document that may be invalid."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from berth.core.problems import closest_match
from berth.documents.values import Location

DEPTH_MAX, LISTED_MAX = 16, 64


def role_locations(data: Mapping[str, Any]) -> Sequence[Location]:
    """Return each role's location, in document order.

    If the document has no roles, return the location where the first role would be.
    """
    return [*_iter_role_locations(data, ())] or [(_find_roles_key(data), 0)]


def _iter_role_locations(node: Any, at: Location) -> Iterator[Location]:
    if not isinstance(node, Mapping) or len(at) > DEPTH_MAX:
        return
    for number in range(list_length(node.get("roles"))):
        if isinstance(node["roles"][number], Mapping):
            yield (*at, "roles", number)
    for number in range(list_length(node.get("groups"))):
        yield from _iter_role_locations(node["groups"][number], (*at, "groups", number))


def _find_roles_key(data: Mapping[str, Any]) -> str:
    """Return the document's key for the list of roles, even if it is misspelled, such as `rolls`."""
    lists = [str(key) for key, value in data.items() if list_length(value)]
    return next((key for key in lists if key != "roles" and closest_match(key, ["roles"])), "roles")


def list_length(value: Any) -> int:
    return min(len(value), LISTED_MAX) if isinstance(value, list) else 0
