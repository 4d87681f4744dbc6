"""Decide a pool's next step from current to desired nodes.

A node counts once: pending (ordered, not there yet), current (takes work, or would if nobody had cordoned
it) or draining. All that is known stands in rows, so a step is a function of what is, not of what happened:
an event changes the fleet, `next_step` looks at the fleet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from pools.engine.budgets import UNBOUND, Allowance
from pools.engine.victims import HEAD, Work, allowed, victims


class Phase(StrEnum):
    WATCHING = "watching"
    SCALING_UP = "scaling_up"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes of a pool by ordinal.

    `retiring` are drained on somebody's order, whatever is desired; `in_flight` is how many the one call to
    the provider asks for; `may_order` is no while a failed call waits for its tick, or the pool is paused.
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
        """What there will be without doing anything more: so that no gap is ordered for twice."""
        return len(self.current) + len(self.pending) + self.in_flight

    @property
    def ordinals_in_use(self) -> frozenset[int]:
        return self.current | self.pending | self.draining | self.retiring

    # What happened, as a change of the fleet.

    def with_desired(self, desired: int) -> "Fleet":
        return replace(self, desired=desired)

    def ordered(self, order: "Order") -> "Fleet":
        return replace(self, in_flight=order.count)

    def provisioned(self, ordinals: Iterable[int]) -> "Fleet":
        """The call is over; these came, be they fewer or later than was hoped."""
        return replace(self, in_flight=0, pending=self.pending | (frozenset(ordinals) - self.ordinals_in_use))

    def provision_failed(self) -> "Fleet":
        return replace(self, in_flight=0, may_order=False)

    def ticked(self) -> "Fleet":
        return replace(self, may_order=True)

    def joined(self, ordinal: int) -> "Fleet":
        if ordinal not in self.pending:
            return self
        return replace(self, pending=self.pending - {ordinal}, current=self.current | {ordinal})

    def lost(self, ordinal: int) -> "Fleet":
        gone = {ordinal}
        return replace(
            self,
            current=self.current - gone,
            pending=self.pending - gone,
            draining=self.draining - gone,
            retiring=self.retiring - gone,
        )

    def drained(self, ordinal: int) -> "Fleet":
        """Ignored for a node that was ordinals_in_use back meanwhile."""
        return replace(self, draining=self.draining - {ordinal}, retiring=self.retiring - {ordinal})


@dataclass(frozen=True, slots=True)
class Order:
    """Ask the provider for `count` instances, for the ordinals from `start_ordinal` on."""

    count: int
    start_ordinal: int


@dataclass(frozen=True, slots=True)
class Drain:
    """In this order."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UndoDrain:
    """Abort these drains; the nodes take on work again."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """`blocked_by`: those that would go too, did a budget not keep them."""

    fleet: Fleet
    commands: tuple[Order | Drain | UndoDrain, ...] = ()
    blocked: tuple[int, ...] = ()


def next_step(
    fleet: Fleet, work_to_lose: Mapping[int, Work] | None = None, allowance: Allowance = UNBOUND
) -> Step:
    """What to do now, with the fleet as it is once that is begun. Nothing to do: no commands.

    `work_to_lose` by ordinal, absent = none: those with the least go first, as far as budgets allow.
    """
    commands: list[Order | Drain | UndoDrain] = []
    blocked: tuple[int, ...] = ()
    if fleet.desired > len(fleet.current) and fleet.draining:
        fleet, reverted = _undo_drains(fleet)
        commands.append(reverted)
    if _something_missing(fleet) and not fleet.in_flight and fleet.may_order:
        order = _order(fleet)
        fleet = fleet.ordered(order)
        commands.append(order)
    elif fleet.desired < len(fleet.current) and fleet.may_drain:
        chosen = surplus(fleet, work_to_lose or {})
        going, blocked = allowed(chosen, work_to_lose or {}, allowance)
        if going:
            gone = frozenset(going)
            fleet = replace(fleet, current=fleet.current - gone, draining=fleet.draining | gone)
            commands.append(Drain(going))
    return Step(fleet, tuple(commands), blocked)


def surplus(fleet: Fleet, work_to_lose: Mapping[int, Work]) -> tuple[int, ...]:
    """Who goes, in this order, whatever budgets say. The head only where no node at all is desired."""
    alone = fleet.desired == 0 and not fleet.pending and not fleet.in_flight
    return victims(fleet.current, len(fleet.current) - fleet.desired, work_to_lose, head_too=alone)


def _undo_drains(fleet: Fleet) -> tuple[Fleet, UndoDrain]:
    """As many as are desired again, lowest ordinal first: those that would be drained last."""
    back = tuple(sorted(fleet.draining))[: fleet.desired - len(fleet.current)]
    ordinals_in_use = frozenset(back)
    fleet = replace(fleet, draining=fleet.draining - ordinals_in_use, current=fleet.current | ordinals_in_use)
    return fleet, UndoDrain(back)


def _something_missing(fleet: Fleet) -> bool:
    """Nodes; or the head, without which the others are no use, be there as many of them as there may."""
    return fleet.desired > fleet.effective or (fleet.desired > 0 and HEAD not in fleet.ordinals_in_use)


def _order(fleet: Fleet) -> Order:
    """Consecutive ordinals after the highest one; a missing head first, and alone if need be."""
    missing = max(fleet.desired - fleet.effective, 1)
    start = max(fleet.ordinals_in_use, default=-1) + 1 if HEAD in fleet.ordinals_in_use else HEAD
    count = next((n for n in range(missing) if start + n in fleet.ordinals_in_use), missing)
    return Order(count, start)
