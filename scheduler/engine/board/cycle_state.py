"""Decisions of the current cycle in one pool, replaced when the next cycle starts."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from scheduler.engine.board.effort import Efforts
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.board.nodes import NodeHold
from scheduler.engine.plan import Bundle, Numbers, Reason


@dataclass(slots=True)
class CycleState:
    """Decisions and counters of one cycle. Strings are workload names."""

    refusals: dict[str, dict[Reason, Numbers]] = field(default_factory=dict)  # not shared by a pending group
    reserved_only: set[str] = field(default_factory=set)  # with reservations but no running pod
    started_reservations: set[str] = field(default_factory=set)  # whose reserved pods start in this cycle
    excluded: set[str] = field(default_factory=set)  # never victims: preemptors and moved workloads
    evicted: set[str] = field(default_factory=set)
    scaled_down: set[str] = field(default_factory=set)
    placed_in_other_pool: set[str] = field(default_factory=set)
    bundles: list[Bundle] = field(default_factory=list)
    backfill_hold: NodeHold | None = None
    trials: int = 0  # trials and the attempts made inside them
    accepted_trials: int = 0
    evicting_trials: int = 0  # accepted trials after which all pending gangs are tried again
    efforts: Efforts = field(default_factory=Efforts)
    reclaimable_cache: dict[QueueAccount, dict[Hashable, object]] = field(default_factory=dict)
