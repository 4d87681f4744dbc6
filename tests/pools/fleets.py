"""Functions that return a fleet of nodes after one event."""

from collections.abc import Iterable
from dataclasses import replace

from pools.engine.reconciler import Fleet


def after_provisioning(fleet: Fleet, ordinals: Iterable[int]) -> Fleet:
    """Return the fleet after a launch request has delivered these nodes, possibly fewer than requested."""
    new_ordinals = frozenset(ordinals) - fleet.ordinals_in_use
    return replace(fleet, in_flight=0, pending=fleet.pending | new_ordinals)


def after_failed_order(fleet: Fleet) -> Fleet:
    return replace(fleet, in_flight=0, may_launch=False)


def after_tick(fleet: Fleet) -> Fleet:
    return replace(fleet, may_launch=True)


def after_join(fleet: Fleet, ordinal: int) -> Fleet:
    if ordinal not in fleet.pending:
        return fleet
    return replace(fleet, pending=fleet.pending - {ordinal}, current=fleet.current | {ordinal})


def without_node(fleet: Fleet, ordinal: int) -> Fleet:
    node = {ordinal}
    return replace(
        fleet,
        current=fleet.current - node,
        pending=fleet.pending - node,
        draining=fleet.draining - node,
        retiring=fleet.retiring - node,
    )


def after_drain(fleet: Fleet, ordinal: int) -> Fleet:
    """Return the fleet without this drained node, or unchanged if the drain was reverted."""
    return replace(fleet, draining=fleet.draining - {ordinal}, retiring=fleet.retiring - {ordinal})
