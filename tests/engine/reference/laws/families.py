"""All laws, by family."""

from collections.abc import Callable, Iterator, Mapping

from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from tests.engine.reference.laws import bounds, evictions, gangs, placement, reasons, shares

Law = Callable[[Snapshot, Plan], Iterator[str]]

FAMILIES: Mapping[str, tuple[Law, ...]] = {
    "placement": placement.LAWS,
    "gangs": gangs.LAWS,
    "bounds": bounds.LAWS,
    "evictions": evictions.LAWS,
    "reasons": reasons.LAWS,
    "shares": shares.LAWS,
}


def broken_laws(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return "law: violation" for every law that the plan breaks."""
    return [
        f"{law.__name__}: {how}" for laws in FAMILIES.values() for law in laws for how in law(snapshot, plan)
    ]
