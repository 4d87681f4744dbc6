"""Here we tell which pending gangs ask for the very same thing, so that one answer serves them all."""

from collections.abc import Hashable

from scheduler.engine.gang import Gang, Part, Section


def shape(gang: Gang) -> Hashable:
    """Equal for gangs that fit in the same places; a gang of which some stands is like no other."""
    if gang.stands:
        return gang.name
    if gang.simple and len(gang.parts) == 1:
        return _part(gang.parts[0])
    return _section(gang.root)


def _section(section: Section) -> Hashable:
    return (
        section.need,
        section.topology,
        tuple(_part(child) if isinstance(child, Part) else _section(child) for child in section.children),
    )


def _part(part: Part) -> Hashable:
    role = part.role
    return (
        role.min - part.done, role.max, part.request, part.mask, part.soft,
        role.spread_per_node, role.topology, len(part.used),
    )  # fmt: skip
