"""Release nodes that a pool does not need.

Empty nodes are released first. Nodes with work are released one at a time, in one transaction with the moves
that empty them.
"""

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from berth.core.wording.words import format_count
from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import fenced_transaction
from pools.engine.budgets import DisruptionReason
from pools.models import NodePool
from pools.services import ReleasableNodes, releasable_nodes, release_pool_nodes
from scheduler.engine.node_release import (
    ReleasableNode,
    find_empty_nodes,
    find_node_to_release,
    is_pool_settled,
)
from scheduler.engine.plan import Plan
from scheduler.loop.commit import commit
from scheduler.loop.context import SchedulerContext
from scheduler.loop.cycle_record import CycleRun, save_outcome
from scheduler.models import Cycle

log = logging.getLogger(__name__)

# Interval between two searches in a pool. A search takes as long as several decisions.
SEARCH_INTERVAL = timedelta(seconds=30)
SEARCH_COST_FACTOR = 20  # minimum interval as a multiple of the search time
TRIGGER = "release nodes"


class _OutdatedRelease(Exception):
    """Raised if the pool or other rows have changed since the decision. Nothing has been written."""


@dataclass(slots=True)
class NodeReleases:
    """Release of unneeded nodes, with the time when each pool was last searched for them."""

    searched: dict[int, tuple[datetime, timedelta]] = field(default_factory=dict)

    def release_unneeded_nodes(self, run: CycleRun, now: datetime, context: SchedulerContext) -> int:
        """Release empty and underutilized nodes after the newest cycle.

        Return the number of released nodes.
        """
        return sum(
            self._release_from_pool(pool, run, now, context)
            for _, pool in sorted(run.view.pools.items())
            if pool.node_consolidation != NodePool.NodeConsolidation.NEVER
        )

    def _release_from_pool(
        self, pool: NodePool, run: CycleRun, now: datetime, context: SchedulerContext
    ) -> int:
        if not self._is_search_due(pool, now) or not is_pool_settled(run.plan, pool.name):
            return 0
        offered = releasable_nodes(pool, now)
        if not offered:
            return 0
        self.searched[pool.pk] = now, SEARCH_INTERVAL
        began = time.process_time()
        count = _release_empty_nodes(pool, offered, run, context) or _release_underutilized_node(
            pool, offered, run, context
        )
        took = timedelta(seconds=time.process_time() - began)
        self.searched[pool.pk] = now, max(SEARCH_INTERVAL, SEARCH_COST_FACTOR * took)
        return count

    def _is_search_due(self, pool: NodePool, now: datetime) -> bool:
        if pool.pk not in self.searched:
            return True
        at, pause = self.searched[pool.pk]
        return not at <= now < at + pause


def _release_empty_nodes(
    pool: NodePool, offered: ReleasableNodes, run: CycleRun, context: SchedulerContext
) -> int:
    snapshot = run.view.snapshot
    names = find_empty_nodes(snapshot, run.plan, pool.name, offered.nodes, offered.empty)
    if not names:
        return 0
    message = f"nothing runs on {format_count(len(names), 'node')}: {', '.join(names)}"
    with fenced_transaction(context.held_lease):
        count = release_pool_nodes(pool.pk, names, DisruptionReason.EMPTY, message=message, at=run.view.at)
    return len(names) if count else 0


def _release_underutilized_node(
    pool: NodePool, offered: ReleasableNodes, run: CycleRun, context: SchedulerContext
) -> int:
    if not offered.underutilized:
        return 0
    release = find_node_to_release(run.view.snapshot, run.plan, pool.name, offered.nodes)
    if release is None:
        return 0
    try:
        _commit_release(release, pool, run, context)
    except _OutdatedRelease as why:
        log.info("node %s is not released after all: %s", release.node, why)
        return 0
    return 1


def _commit_release(
    release: ReleasableNode, pool: NodePool, run: CycleRun, context: SchedulerContext
) -> None:
    """Commit the release of a node and the moves that empty it. Raises _OutdatedRelease."""
    moved = Plan(bundles=release.bundles, queues=run.plan.queues)
    record = Cycle(
        at=run.view.at, epoch=context.held_lease.epoch, trigger=TRIGGER, nodes=len(run.view.snapshot.nodes),
        workloads=len(run.view.snapshot.workloads), bundles=len(release.bundles), engine=run.record.engine,
    )  # fmt: skip
    with fenced_transaction(context.held_lease):
        message = f"the node's workloads fit on other nodes: {_move_summary(release)}"
        if not release_pool_nodes(
            pool.pk, [release.node], DisruptionReason.UNDERUTILIZED, message=message, at=run.view.at
        ):
            raise _OutdatedRelease("the node can no longer be released")
        crash_point("release.drained")
        outcome = commit(run.view, moved, context.held_lease, record)
        if outcome.stale:
            raise _OutdatedRelease(outcome.stale[0][1])
        save_outcome(CycleRun(run.view, moved, outcome, record), ())
        crash_point("release.before_end")


def _move_summary(release: ReleasableNode) -> str:
    pods = sum(len(eviction.pods) for bundle in release.bundles for eviction in bundle.evictions)
    workloads = format_count(len(release.bundles), "workload")
    return f"{format_count(pods, 'pod')} of {workloads} moved off {release.node}"
