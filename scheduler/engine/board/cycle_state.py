"""Decisions of the current cycle in one pool, discarded when the next cycle starts."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from scheduler.engine.board.effort import PlacementAttempts
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.board.nodes import NodeHold
from scheduler.engine.plan import Bundle, Numbers, Reason


@dataclass(slots=True)
class CycleState:
    """Decisions and counters of one cycle. Strings are workload names."""

    refusals: dict[str, dict[Reason, Numbers]] = field(default_factory=dict)  # besides those of groups
    reserved_only: set[str] = field(default_factory=set)  # gangs with reservations but no running pods
    started_reservations: set[str] = field(default_factory=set)  # gangs that start as reserved
    excluded: set[str] = field(default_factory=set)  # never victims: preemptors and moved workloads
    evicted: set[str] = field(default_factory=set)
    scaled_down: set[str] = field(default_factory=set)
    placed_in_other_pool: set[str] = field(default_factory=set)
    bundles: list[Bundle] = field(default_factory=list)
    backfill_hold: NodeHold | None = None
    trials: int = 0  # includes the attempts within each trial
    accepted_trials: int = 0
    evicting_trials: int = 0  # accepted trials that make all pending gangs worth retrying
    placement_attempts: PlacementAttempts = field(default_factory=PlacementAttempts)
    reclaimable_cache: dict[QueueAccount, dict[Hashable, object]] = field(default_factory=dict)
