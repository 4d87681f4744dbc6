"""Decisions of the current cycle in one pool, discarded when the next cycle starts."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from scheduler.engine.board.effort import PlacementAttempts
from scheduler.engine.board.gang import PendingGroup
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.board.nodes import NodeHold
from scheduler.engine.plan import Bundle, Numbers, Reason


@dataclass(slots=True)
class CycleState:
    """Decisions and counters of one cycle. Sets of strings contain workload names."""

    # Pending reasons of individual gangs, in addition to the reasons of their groups.
    rejections: dict[str, dict[Reason, Numbers]] = field(default_factory=dict)
    reserved_only: set[str] = field(default_factory=set)  # gangs with reservations and no running pods
    started_reservations: set[str] = field(default_factory=set)  # gangs started on reserved capacity
    excluded: set[str] = field(default_factory=set)  # preemptors and moved workloads, which are never victims
    evicted: set[str] = field(default_factory=set)
    scaled_down: set[str] = field(default_factory=set)
    placed_in_other_pool: set[str] = field(default_factory=set)
    bundles: list[Bundle] = field(default_factory=list)
    backfill_hold: NodeHold | None = None
    # Function that finds the nodes to hold. It is called only when a decision depends on held nodes.
    find_hold: Callable[[], NodeHold | None] | None = None
    overdue: list[PendingGroup] = field(default_factory=list)  # groups that are eligible for a hold
    # Projects whose gangs have been considered for a hold.
    considered_for_hold: set[QueueAccount] = field(default_factory=set)
    hold_waits_for_project: bool = False  # whether the gang with the hold also waits for quota or fair share
    hold_searches: int = 0  # number of searches for nodes to hold, one per gang
    trials: int = 0  # number of trials plus placement attempts within trials
    accepted_trials: int = 0
    repack_steps: int = 0  # number of steps in exact repacking searches
    # Number of accepted trials that evicted pods or asked for a retry. Another round follows unless it is 0.
    evicting_trials: int = 0
    placement_attempts: PlacementAttempts = field(default_factory=PlacementAttempts)
    reclaimable_cache: dict[QueueAccount, dict[Hashable, object]] = field(default_factory=dict)

    def held_nodes(self) -> NodeHold | None:
        """Return the nodes held for a pending workload, or None. Only the first call searches for nodes."""
        if self.find_hold is not None:
            find, self.find_hold = self.find_hold, None
            self.backfill_hold = find()
        return self.backfill_hold
