"""Release nodes that a pool does not need.

Nodes on which nothing runs go first, all at once as far as budgets allow. A node with work goes alone: the
moves that empty it and its drain are one transaction, so that neither is done without the other.
"""

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from berth.core.words import counted
from berth.db.lease import fenced
from pools.engine.budgets import DisruptionReason
from pools.models import NodePool
from pools.services import Offer, give_back, offer
from scheduler.commit import commit
from scheduler.cycles import Ran, finish
from scheduler.engine.node_release import Release, empty_nodes, is_at_rest, node_to_empty
from scheduler.engine.plan import Plan
from scheduler.models import Cycle
from scheduler.points import point
from scheduler.post import Post

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=30)  # of one pool: the question costs as much as some decisions
PART = 20  # and it is asked again after so many times as long as the answer took, if that is longer
TRIGGER = "nodes to give back"


class _Outdated(Exception):
    """Somebody was faster; nothing of it was written."""


@dataclass(slots=True)
class Releases:
    """Remembers only when each pool may be asked again."""

    asked: dict[int, tuple[datetime, timedelta]] = field(default_factory=dict)

    def give_back(self, ran: Ran, now: datetime, post: Post) -> int:
        """How many nodes are given back, by what the newest cycle saw and decided."""
        return sum(
            self._of(pool, ran, now, post)
            for _, pool in sorted(ran.seen.pools.items())
            if pool.node_consolidation != NodePool.NodeConsolidation.NEVER
        )

    def _of(self, pool: NodePool, ran: Ran, now: datetime, post: Post) -> int:
        if not self._due(pool, now) or not is_at_rest(ran.plan, pool.name):
            return 0
        offered = offer(pool, now)
        if not offered:
            return 0
        self.asked[pool.pk] = now, EVERY
        began = time.process_time()
        given = _empty(pool, offered, ran, post) or _emptied(pool, offered, ran, post)
        took = timedelta(seconds=time.process_time() - began)
        self.asked[pool.pk] = now, max(EVERY, PART * took)
        return given

    def _due(self, pool: NodePool, now: datetime) -> bool:
        """A clock that was set back must not make it wait for years."""
        if pool.pk not in self.asked:
            return True
        at, pause = self.asked[pool.pk]
        return not at <= now < at + pause


def _empty(pool: NodePool, offered: Offer, ran: Ran, post: Post) -> int:
    snapshot = ran.seen.snapshot
    names = empty_nodes(snapshot, ran.plan, pool.name, offered.nodes, offered.empty)
    if not names:
        return 0
    because = f"nothing runs on {counted(len(names), 'node')}: {', '.join(names)}"
    with fenced(post.held):
        given = give_back(pool.pk, names, DisruptionReason.EMPTY, because=because, at=ran.seen.at)
    return len(names) if given else 0


def _emptied(pool: NodePool, offered: Offer, ran: Ran, post: Post) -> int:
    if not offered.underutilised:
        return 0
    found = node_to_empty(ran.seen.snapshot, ran.plan, pool.name, offered.nodes)
    if found is None:
        return 0
    try:
        _carry_out(found, pool, ran, post)
    except _Outdated as why:
        log.info("node %s is not given back after all: %s", found.node, why)
        return 0
    return 1


def _carry_out(found: Release, pool: NodePool, ran: Ran, post: Post) -> None:
    """The pool first: who changes its size waits, and so cannot wait for us while we wait for it."""
    moved = Plan(bundles=found.bundles, queues=ran.plan.queues)
    record = Cycle(
        at=ran.seen.at, epoch=post.held.epoch, trigger=TRIGGER, nodes=len(ran.seen.snapshot.nodes),
        workloads=len(ran.seen.snapshot.workloads), bundles=len(found.bundles), engine=ran.record.engine,
    )  # fmt: skip
    with fenced(post.held):
        because = f"its work fits on the other nodes: {_told(found)}"
        if not give_back(
            pool.pk, [found.node], DisruptionReason.UNDERUTILISED, because=because, at=ran.seen.at
        ):
            raise _Outdated("the pool does not offer it any more")
        point("release.drained")
        outcome = commit(ran.seen, moved, post.held, record)
        if outcome.stale:
            raise _Outdated(outcome.stale[0][1])
        finish(Ran(ran.seen, moved, outcome, record), ())
        point("release.before_end")


def _told(found: Release) -> str:
    pods = sum(len(eviction.pods) for bundle in found.bundles for eviction in bundle.evictions)
    return f"{counted(pods, 'pod')} of {counted(len(found.bundles), 'workload')} moved off {found.node}"
