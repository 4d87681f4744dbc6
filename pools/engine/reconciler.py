"""Decide the next step that brings a pool closer to its desired node count.

A node is pending (requested but not ready), current (ready or cordoned) or draining. Decisions depend only on
the current fleet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from pools.engine.budgets import UNLIMITED, Allowance
from pools.engine.victims import HEAD, LostWork, choose_victims, split_by_budget


class Phase(StrEnum):
    WATCHING = "watching"
    SCALING_UP = "scaling_up"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes of a pool by state, as sets of ordinals.

    `queued` are the pending nodes that wait in the provider's queue. `retiring` nodes are drained on request.
    `in_flight` is the number of nodes in the current launch request. `may_launch` is False while the pool is
    paused or waits after a failed request.
    """

    desired: int
    current: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    draining: frozenset[int] = frozenset()
    retiring: frozenset[int] = frozenset()
    in_flight: int = 0
    may_launch: bool = True
    may_drain: bool = True
    queued: frozenset[int] = frozenset()

    @property
    def phase(self) -> Phase:
        if self.in_flight:
            return Phase.SCALING_UP
        return Phase.DRAINING if self.draining else Phase.WATCHING

    @property
    def effective_size(self) -> int:
        """Number of current and requested nodes. Counting requested nodes prevents duplicate requests."""
        return len(self.current) + len(self.pending) + self.in_flight

    @property
    def ordinals_in_use(self) -> frozenset[int]:
        return self.current | self.pending | self.draining | self.retiring

    def with_desired_nodes(self, desired: int) -> "Fleet":
        return replace(self, desired=desired)

    def after_launch(self, launch: "Launch") -> "Fleet":
        return replace(self, in_flight=launch.count)


@dataclass(frozen=True, slots=True)
class Launch:
    """Command to request `count` instances with ordinals from `start_ordinal`."""

    count: int
    start_ordinal: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Command to drain nodes in the given order."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CancelQueuedNodes:
    """Command to withdraw node requests that are still in the provider's queue."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UndoDrain:
    """Command to cancel the drains of nodes, so that they accept pods again."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Commands to execute, and the fleet that results.

    `blocked` are the nodes that disruption budgets keep from draining.
    """

    fleet: Fleet
    commands: tuple["Command", ...] = ()
    blocked: tuple[int, ...] = ()


Command = Launch | Drain | CancelQueuedNodes | UndoDrain


def next_step(
    fleet: Fleet, work_to_lose: Mapping[int, LostWork] | None = None, allowance: Allowance = UNLIMITED
) -> Step:
    """Return the commands that bring the fleet closer to its desired size, and the resulting fleet.

    `work_to_lose` maps ordinals to the work that a drain would lose. Nodes with the least work are drained
    first.
    """
    commands: list[Command] = []
    blocked: tuple[int, ...] = ()
    if fleet.desired > len(fleet.current) and fleet.draining:
        fleet, reverted = _undo_drains(fleet)
        commands.append(reverted)
    if _needs_nodes(fleet) and not fleet.in_flight and fleet.may_launch:
        launch = _next_launch(fleet)
        fleet = fleet.after_launch(launch)
        commands.append(launch)
    elif withdrawn := _surplus_queued_nodes(fleet):
        fleet = replace(fleet, pending=fleet.pending - set(withdrawn), queued=fleet.queued - set(withdrawn))
        commands.append(CancelQueuedNodes(withdrawn))
    elif fleet.desired < len(fleet.current) and fleet.may_drain:
        chosen = surplus_nodes(fleet, work_to_lose or {})
        drainable, blocked = split_by_budget(chosen, work_to_lose or {}, allowance)
        if drainable:
            drained = frozenset(drainable)
            fleet = replace(fleet, current=fleet.current - drained, draining=fleet.draining | drained)
            commands.append(Drain(drainable))
    return Step(fleet, tuple(commands), blocked)


def _surplus_queued_nodes(fleet: Fleet) -> tuple[int, ...]:
    """Return the queued nodes that are not needed, highest ordinals first."""
    if not fleet.may_drain:
        return ()
    surplus = max(fleet.effective_size - fleet.desired, 0)
    candidates = fleet.queued if fleet.desired == 0 else fleet.queued - {HEAD}
    return tuple(sorted(candidates, reverse=True)[:surplus])


def surplus_nodes(fleet: Fleet, work_to_lose: Mapping[int, LostWork]) -> tuple[int, ...]:
    """Return the nodes to drain, in order, regardless of disruption budgets.

    The head node is included only if no nodes are needed.
    """
    drains_head = fleet.desired == 0 and not fleet.pending and not fleet.in_flight
    return choose_victims(
        fleet.current, len(fleet.current) - fleet.desired, work_to_lose, include_head=drains_head
    )


def _undo_drains(fleet: Fleet) -> tuple[Fleet, UndoDrain]:
    """Cancel drains until the fleet has its desired size, lowest ordinals first."""
    ordinals = tuple(sorted(fleet.draining))[: fleet.desired - len(fleet.current)]
    reverted_ordinals = frozenset(ordinals)
    fleet = replace(
        fleet, draining=fleet.draining - reverted_ordinals, current=fleet.current | reverted_ordinals
    )
    return fleet, UndoDrain(ordinals)


def _needs_nodes(fleet: Fleet) -> bool:
    """Return whether the fleet has too few nodes or lacks its head node."""
    return fleet.desired > fleet.effective_size or (fleet.desired > 0 and HEAD not in fleet.ordinals_in_use)


def _next_launch(fleet: Fleet) -> Launch:
    """Return a launch request for missing nodes.

    If the head node is missing, the request starts with it. Otherwise, it starts after the highest ordinal in
    use.
    """
    missing = max(fleet.desired - fleet.effective_size, 1)
    start = max(fleet.ordinals_in_use, default=-1) + 1 if HEAD in fleet.ordinals_in_use else HEAD
    count = next((n for n in range(missing) if start + n in fleet.ordinals_in_use), missing)
    return Launch(count, start)
