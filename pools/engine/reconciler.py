"""Decide a pool's next step from current to desired nodes.

Each node is counted once: as pending (ordered, not ready), current (ready or cordoned) or draining. All state
is in the database. Events change the fleet, and `next_step` reads only the fleet, not past events.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from pools.engine.budgets import UNLIMITED, Allowance
from pools.engine.victims import HEAD, Work, allowed, victims


class Phase(StrEnum):
    WATCHING = "watching"
    SCALING_UP = "scaling_up"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes of a pool by ordinal.

    `retiring` nodes are drained on request, regardless of the desired size. `in_flight` is the number of
    nodes in the current order. `may_order` is false while a failed order is delayed or the pool is paused.
    """

    desired: int
    current: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    draining: frozenset[int] = frozenset()
    retiring: frozenset[int] = frozenset()
    in_flight: int = 0
    may_order: bool = True
    may_drain: bool = True

    @property
    def phase(self) -> Phase:
        if self.in_flight:
            return Phase.SCALING_UP
        return Phase.DRAINING if self.draining else Phase.WATCHING

    @property
    def effective(self) -> int:
        """Number of nodes that the pool will have without further steps, so that no node is ordered twice."""
        return len(self.current) + len(self.pending) + self.in_flight

    @property
    def ordinals_in_use(self) -> frozenset[int]:
        return self.current | self.pending | self.draining | self.retiring

    # Events. Each method returns the changed fleet.

    def with_desired(self, desired: int) -> "Fleet":
        return replace(self, desired=desired)

    def ordered(self, order: "Order") -> "Fleet":
        return replace(self, in_flight=order.count)

    def provisioned(self, ordinals: Iterable[int]) -> "Fleet":
        """Return the fleet after an order delivered these nodes, possibly fewer than ordered."""
        return replace(self, in_flight=0, pending=self.pending | (frozenset(ordinals) - self.ordinals_in_use))

    def provision_failed(self) -> "Fleet":
        return replace(self, in_flight=0, may_order=False)

    def ticked(self) -> "Fleet":
        return replace(self, may_order=True)

    def joined(self, ordinal: int) -> "Fleet":
        if ordinal not in self.pending:
            return self
        return replace(self, pending=self.pending - {ordinal}, current=self.current | {ordinal})

    def without(self, ordinal: int) -> "Fleet":
        node = {ordinal}
        return replace(
            self,
            current=self.current - node,
            pending=self.pending - node,
            draining=self.draining - node,
            retiring=self.retiring - node,
        )

    def drained(self, ordinal: int) -> "Fleet":
        """Return the fleet without this drained node; no change if its drain was reverted."""
        return replace(self, draining=self.draining - {ordinal}, retiring=self.retiring - {ordinal})


@dataclass(frozen=True, slots=True)
class Order:
    """Order `count` instances with ordinals from `start_ordinal` on."""

    count: int
    start_ordinal: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain these nodes, in this order."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UndoDrain:
    """Abort these drains; the nodes accept pods again."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Commands, and the fleet after them. Only a disruption budget delays the drain of `blocked` nodes."""

    fleet: Fleet
    commands: tuple[Order | Drain | UndoDrain, ...] = ()
    blocked: tuple[int, ...] = ()


def next_step(
    fleet: Fleet, work_to_lose: Mapping[int, Work] | None = None, allowance: Allowance = UNLIMITED
) -> Step:
    """Return the commands to start now, possibly none, and the fleet after them.

    `work_to_lose` maps ordinals to work. Nodes with the least work are drained first, as far as budgets
    allow.
    """
    commands: list[Order | Drain | UndoDrain] = []
    blocked: tuple[int, ...] = ()
    if fleet.desired > len(fleet.current) and fleet.draining:
        fleet, reverted = _undo_drains(fleet)
        commands.append(reverted)
    if _lacks_nodes(fleet) and not fleet.in_flight and fleet.may_order:
        order = _order(fleet)
        fleet = fleet.ordered(order)
        commands.append(order)
    elif fleet.desired < len(fleet.current) and fleet.may_drain:
        chosen = surplus(fleet, work_to_lose or {})
        going, blocked = allowed(chosen, work_to_lose or {}, allowance)
        if going:
            drained = frozenset(going)
            fleet = replace(fleet, current=fleet.current - drained, draining=fleet.draining | drained)
            commands.append(Drain(going))
    return Step(fleet, tuple(commands), blocked)


def surplus(fleet: Fleet, work_to_lose: Mapping[int, Work]) -> tuple[int, ...]:
    """Return the nodes to drain, in order and ignoring budgets. The head is included only if no node is
    desired.
    """
    alone = fleet.desired == 0 and not fleet.pending and not fleet.in_flight
    return victims(fleet.current, len(fleet.current) - fleet.desired, work_to_lose, head_too=alone)


def _undo_drains(fleet: Fleet) -> tuple[Fleet, UndoDrain]:
    """Revert as many drains as needed, lowest ordinals first, because those would be drained last."""
    ordinals = tuple(sorted(fleet.draining))[: fleet.desired - len(fleet.current)]
    returning = frozenset(ordinals)
    fleet = replace(fleet, draining=fleet.draining - returning, current=fleet.current | returning)
    return fleet, UndoDrain(ordinals)


def _lacks_nodes(fleet: Fleet) -> bool:
    """Return True if nodes are missing, or the head, without which the other nodes are useless."""
    return fleet.desired > fleet.effective or (fleet.desired > 0 and HEAD not in fleet.ordinals_in_use)


def _order(fleet: Fleet) -> Order:
    """Return an order for consecutive ordinals after the highest one, or for a missing head first."""
    missing = max(fleet.desired - fleet.effective, 1)
    start = max(fleet.ordinals_in_use, default=-1) + 1 if HEAD in fleet.ordinals_in_use else HEAD
    count = next((n for n in range(missing) if start + n in fleet.ordinals_in_use), missing)
    return Order(count, start)
