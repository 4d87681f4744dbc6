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

    `leaving` are drained on somebody's order, whatever is wanted; `in_flight` is how many the one call to
    the provider asks for; `may_order` is no while a failed call waits for its tick, or the pool is paused.
    """

    wanted: int
    current: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    draining: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()
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
    def taken(self) -> frozenset[int]:
        return self.current | self.pending | self.draining | self.leaving

    # What happened, as a change of the fleet.

    def with_wanted(self, wanted: int) -> "Fleet":
        return replace(self, wanted=wanted)

    def ordered(self, order: "Order") -> "Fleet":
        return replace(self, in_flight=order.count)

    def provisioned(self, ordinals: Iterable[int]) -> "Fleet":
        """The call is over; these came, be they fewer or later than was hoped."""
        return replace(self, in_flight=0, pending=self.pending | (frozenset(ordinals) - self.taken))

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
            leaving=self.leaving - gone,
        )

    def drained(self, ordinal: int) -> "Fleet":
        """Ignored for a node that was taken back meanwhile."""
        return replace(self, draining=self.draining - {ordinal}, leaving=self.leaving - {ordinal})


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
class TakeBack:
    """Abort these drains; the nodes take on work again."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """`held_back`: those that would go too, did a budget not keep them."""

    fleet: Fleet
    commands: tuple[Order | Drain | TakeBack, ...] = ()
    held_back: tuple[int, ...] = ()


def next_step(
    fleet: Fleet, work_to_lose: Mapping[int, Work] | None = None, allowance: Allowance = UNBOUND
) -> Step:
    """What to do now, with the fleet as it is once that is begun. Nothing to do: no commands.

    `work_to_lose` by ordinal, absent = none: those with the least go first, as far as budgets allow.
    """
    commands: list[Order | Drain | TakeBack] = []
    held_back: tuple[int, ...] = ()
    if fleet.wanted > len(fleet.current) and fleet.draining:
        fleet, taken_back = _take_back(fleet)
        commands.append(taken_back)
    if _something_missing(fleet) and not fleet.in_flight and fleet.may_order:
        order = _order(fleet)
        fleet = fleet.ordered(order)
        commands.append(order)
    elif fleet.wanted < len(fleet.current) and fleet.may_drain:
        chosen = surplus(fleet, work_to_lose or {})
        going, held_back = allowed(chosen, work_to_lose or {}, allowance)
        if going:
            gone = frozenset(going)
            fleet = replace(fleet, current=fleet.current - gone, draining=fleet.draining | gone)
            commands.append(Drain(going))
    return Step(fleet, tuple(commands), held_back)


def surplus(fleet: Fleet, work_to_lose: Mapping[int, Work]) -> tuple[int, ...]:
    """Who goes, in this order, whatever budgets say. The head only where no node at all is wanted."""
    alone = fleet.wanted == 0 and not fleet.pending and not fleet.in_flight
    return victims(fleet.current, len(fleet.current) - fleet.wanted, work_to_lose, head_too=alone)


def _take_back(fleet: Fleet) -> tuple[Fleet, TakeBack]:
    """As many as are wanted again, lowest ordinal first: those that would be drained last."""
    back = tuple(sorted(fleet.draining))[: fleet.wanted - len(fleet.current)]
    taken = frozenset(back)
    fleet = replace(fleet, draining=fleet.draining - taken, current=fleet.current | taken)
    return fleet, TakeBack(back)


def _something_missing(fleet: Fleet) -> bool:
    """Nodes; or the head, without which the others are no use, be there as many of them as there may."""
    return fleet.wanted > fleet.effective or (fleet.wanted > 0 and HEAD not in fleet.taken)


def _order(fleet: Fleet) -> Order:
    """Consecutive ordinals after the highest one; a missing head first, and alone if need be."""
    missing = max(fleet.wanted - fleet.effective, 1)
    start = max(fleet.taken, default=-1) + 1 if HEAD in fleet.taken else HEAD
    count = next((n for n in range(missing) if start + n in fleet.taken), missing)
    return Order(count, start)
