"""All laws, by family."""

from collections.abc import Callable, Iterator, Mapping

from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from tests.engine.reference import (
    laws_of_bounds,
    laws_of_evictions,
    laws_of_gangs,
    laws_of_placement,
    laws_of_reasons,
    laws_of_shares,
)

Law = Callable[[Snapshot, Plan], Iterator[str]]

FAMILIES: Mapping[str, tuple[Law, ...]] = {
    "placement": laws_of_placement.LAWS,
    "gangs": laws_of_gangs.LAWS,
    "bounds": laws_of_bounds.LAWS,
    "evictions": laws_of_evictions.LAWS,
    "reasons": laws_of_reasons.LAWS,
    "shares": laws_of_shares.LAWS,
}


def broken_laws(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return "law: violation" for every law that the plan breaks."""
    return [
        f"{law.__name__}: {how}" for laws in FAMILIES.values() for law in laws for how in law(snapshot, plan)
    ]
