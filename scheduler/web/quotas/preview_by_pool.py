"""Group a quota draft's effects by pool."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from berth.core.wording.words import format_number
from scheduler.reports.what_if.plan_comparison import Document, PlanChanges
from scheduler.reports.what_if.quota_preview import QuotaImpact

Entry = Mapping[str, Any]
PARTS = ("removed", "warnings", "shares", "starts", "no_longer_starting", "evictions", "reasons")


@dataclass(slots=True)
class PoolImpact:
    """Effects on one pool. `name` is empty for effects that are not tied to a pool."""

    name: str
    removed: list[Entry] = field(default_factory=list)
    warnings: list[Entry] = field(default_factory=list)
    shares: list[Entry] = field(default_factory=list)
    starts: list[Entry] = field(default_factory=list)
    no_longer_starting: list[Entry] = field(default_factory=list)
    evictions: list[Entry] = field(default_factory=list)
    reasons: list[Entry] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """Effects on the pool as one line of text."""
        counts = (
            (len(self.evictions), "would be evicted"),
            (len(self.starts), "would start"),
            (len(self.no_longer_starting), "would no longer start"),
            (len(self.shares), "fair shares change" if len(self.shares) != 1 else "fair share changes"),
        )
        return ", ".join(f"{count} {what}" for count, what in counts if count)


def group_by_pool(impact: QuotaImpact) -> list[PoolImpact]:
    """Return the effects by pool: pools with evictions first, then pools with edited quotas.

    Effects without a pool come last.
    """
    pools: dict[str, PoolImpact] = {}
    edited = {quota["pool"] for quota in impact.quotas}
    for part in PARTS:
        for entry in getattr(impact, part):
            name = entry.get("pool") or ""
            getattr(pools.setdefault(name, PoolImpact(name)), part).append(entry)
    return sorted(
        pools.values(),
        key=lambda pool: (not pool.name, not pool.evictions, pool.name not in edited, pool.name),
    )


def shares_with_visible_change(impact: PlanChanges) -> list[Document]:
    """Return the fair shares whose displayed number of GPUs changes."""
    return [
        entry
        for entry in impact.shares
        if _displayed_gpus(entry["before"]) != _displayed_gpus(entry["after"])
    ]


def _displayed_gpus(amounts: Mapping[str, Any]) -> str:
    gpus = amounts["gpu"]
    return "" if gpus is None else format_number(float(gpus))
