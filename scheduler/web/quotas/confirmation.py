"""Ask the user to confirm quota edits that evict workloads or delete quotas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth.core.wording.words import format_count
from scheduler.reports.evictions.predicted import MOVED, SCALED_DOWN, count_victims
from scheduler.reports.what_if.quota_preview import QuotaImpact

ACTIONS = {MOVED: "move", SCALED_DOWN: "scale down"}


@dataclass(frozen=True, slots=True)
class Consequences:
    """Evictions and deletions that the user confirms before the edits are applied."""

    evictions: Sequence[Mapping[str, Any]]
    hidden_evictions: int
    hidden_gpus: float
    deleted: Sequence[str]

    @property
    def question(self) -> str:
        """Return a question such as "Evict 2 workloads and delete 1 quota?"."""
        counts: dict[str, int] = {}
        for verb in ("evict", "scale down", "move"):
            group = [entry for entry in self.evictions if ACTIONS.get(entry["kind"], "evict") == verb]
            counts[verb] = count_victims(group)
        counts["evict"] += self.hidden_evictions
        parts = [f"{verb} {format_count(count, 'workload')}" for verb, count in counts.items() if count]
        if self.deleted:
            parts.append(f"delete {format_count(len(self.deleted), 'quota')}")
        *first, last = parts
        text = f"{', '.join(first)} and {last}" if first else last
        return f"{text[:1].upper()}{text[1:]}?"


def find_consequences(impact: QuotaImpact) -> Consequences | None:
    """Return what the user has to confirm, or None if the edits neither evict nor delete."""
    deleted = [
        f"{quota['name']} in {'quota group' if quota['group'] else 'pool'} {quota['pool']}"
        for quota in impact.removed
    ]
    if not (impact.evictions or impact.hidden.evictions or deleted):
        return None
    return Consequences(
        evictions=impact.evictions,
        hidden_evictions=impact.hidden.evictions,
        hidden_gpus=impact.hidden.evicted_gpus,
        deleted=deleted,
    )
