"""Release nodes that a pool does not need.

Empty nodes are released first, as many at once as budgets allow. A node with work is released alone: its
drain and the moves that empty it share one transaction, so that neither happens without the other.
"""

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from berth.core.words import counted
from berth.db.crash_points import crash_point
from berth.db.lease import fenced
from pools.engine.budgets import DisruptionReason
from pools.models import NodePool
from pools.services import Offer, give_back, offer
from scheduler.engine.node_release import Release, empty_nodes, is_at_rest, node_to_empty
from scheduler.engine.plan import Plan
from scheduler.loop.commit import commit
from scheduler.loop.context import SchedulerContext
from scheduler.loop.cycle_record import CycleRun, finish
from scheduler.models import Cycle

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=30)  # per pool, because one search costs as much as several decisions
PART = 20  # minimum interval as a multiple of the search time
TRIGGER = "release nodes"


class _Outdated(Exception):
    """The pool or the rows have changed, and nothing was written."""


@dataclass(slots=True)
class Releases:
    """Time of each pool's last search for nodes to release."""

    searched: dict[int, tuple[datetime, timedelta]] = field(default_factory=dict)

    def give_back(self, run: CycleRun, now: datetime, context: SchedulerContext) -> int:
        """Release empty and underutilized nodes after the newest cycle; return their number."""
        return sum(
            self._release_from(pool, run, now, context)
            for _, pool in sorted(run.view.pools.items())
            if pool.node_consolidation != NodePool.NodeConsolidation.NEVER
        )

    def _release_from(self, pool: NodePool, run: CycleRun, now: datetime, context: SchedulerContext) -> int:
        if not self._due(pool, now) or not is_at_rest(run.plan, pool.name):
            return 0
        offered = offer(pool, now)
        if not offered:
            return 0
        self.searched[pool.pk] = now, EVERY
        began = time.process_time()
        count = _release_empty(pool, offered, run, context) or _release_underutilized(
            pool, offered, run, context
        )
        took = timedelta(seconds=time.process_time() - began)
        self.searched[pool.pk] = now, max(EVERY, PART * took)
        return count

    def _due(self, pool: NodePool, now: datetime) -> bool:
        """True if a search is due. A clock that was set back must not postpone it for long."""
        if pool.pk not in self.searched:
            return True
        at, pause = self.searched[pool.pk]
        return not at <= now < at + pause


def _release_empty(pool: NodePool, offered: Offer, run: CycleRun, context: SchedulerContext) -> int:
    snapshot = run.view.snapshot
    names = empty_nodes(snapshot, run.plan, pool.name, offered.nodes, offered.empty)
    if not names:
        return 0
    because = f"nothing runs on {counted(len(names), 'node')}: {', '.join(names)}"
    with fenced(context.held):
        count = give_back(pool.pk, names, DisruptionReason.EMPTY, because=because, at=run.view.at)
    return len(names) if count else 0


def _release_underutilized(pool: NodePool, offered: Offer, run: CycleRun, context: SchedulerContext) -> int:
    if not offered.underutilised:
        return 0
    release = node_to_empty(run.view.snapshot, run.plan, pool.name, offered.nodes)
    if release is None:
        return 0
    try:
        _commit_release(release, pool, run, context)
    except _Outdated as why:
        log.info("node %s is not released after all: %s", release.node, why)
        return 0
    return 1


def _commit_release(release: Release, pool: NodePool, run: CycleRun, context: SchedulerContext) -> None:
    """Commit a release. The pool is locked before the workloads, in the same order as in a resize."""
    moved = Plan(bundles=release.bundles, queues=run.plan.queues)
    record = Cycle(
        at=run.view.at, epoch=context.held.epoch, trigger=TRIGGER, nodes=len(run.view.snapshot.nodes),
        workloads=len(run.view.snapshot.workloads), bundles=len(release.bundles), engine=run.record.engine,
    )  # fmt: skip
    with fenced(context.held):
        because = f"its work fits on the other nodes: {_move_summary(release)}"
        if not give_back(
            pool.pk, [release.node], DisruptionReason.UNDERUTILISED, because=because, at=run.view.at
        ):
            raise _Outdated("the pool no longer offers the node")
        crash_point("release.drained")
        outcome = commit(run.view, moved, context.held, record)
        if outcome.stale:
            raise _Outdated(outcome.stale[0][1])
        finish(CycleRun(run.view, moved, outcome, record), ())
        crash_point("release.before_end")


def _move_summary(release: Release) -> str:
    pods = sum(len(eviction.pods) for bundle in release.bundles for eviction in bundle.evictions)
    return f"{counted(pods, 'pod')} of {counted(len(release.bundles), 'workload')} moved off {release.node}"
