"""All invariants by family."""

from collections.abc import Callable, Iterator, Mapping

from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from tests.engine.reference.invariants import bounds, evictions, gangs, placement, reasons, shares

Invariant = Callable[[Snapshot, Plan], Iterator[str]]

FAMILIES: Mapping[str, tuple[Invariant, ...]] = {
    "placement": placement.INVARIANTS,
    "gangs": gangs.INVARIANTS,
    "bounds": bounds.INVARIANTS,
    "evictions": evictions.INVARIANTS,
    "reasons": reasons.INVARIANTS,
    "shares": shares.INVARIANTS,
}


def broken_invariants(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return "invariant: violation" for every invariant that the plan breaks."""
    return [
        f"{invariant.__name__}: {how}"
        for invariants in FAMILIES.values()
        for invariant in invariants
        for how in invariant(snapshot, plan)
    ]
