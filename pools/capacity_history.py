"""A pool's capacity over time, from its nodes and scaling history."""

from collections import defaultdict
from datetime import datetime, timedelta

from django.db.models import Q

from pools.engine.timeline import Life, NodePhase, Point, thinned, timeline
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind

MOST_POINTS = 500
MOVES = {
    ScalingKind.READY: NodePhase.CURRENT,
    ScalingKind.UNCORDON: NodePhase.CURRENT,
    ScalingKind.DRAIN_ABORTED: NodePhase.CURRENT,
    ScalingKind.DRAIN: NodePhase.DRAINING,
    ScalingKind.INTERRUPTION: NodePhase.DRAINING,
    ScalingKind.LOST: NodePhase.GONE,
    ScalingKind.TERMINATE: NodePhase.GONE,
}


def capacity_over_time(
    pool: NodePool, *, now: datetime, span: timedelta, most: int = MOST_POINTS
) -> tuple[Point, ...]:
    """The latest `span`, or since the pool was made; times are seconds since the epoch."""
    begin = min(max(now - span, pool.created_at), now)
    points = timeline(_lives(pool, begin), _wanted(pool, begin), begin.timestamp(), now.timestamp())
    return thinned(points, most, now.timestamp())


def _lives(pool: NodePool, begin: datetime) -> list[Life]:
    """Of the nodes that were there at some time since `begin`."""
    there = Node.objects.filter(Q(ended_at=None) | Q(ended_at__gte=begin), pool=pool)
    moves: dict[int, list[tuple[float, NodePhase]]] = defaultdict(list)
    told = ScalingEvent.objects.filter(pool=pool, kind__in=list(MOVES), node__in=there).order_by("pk")
    for node_id, at, kind, overdue in told.values_list("node_id", "at", "kind", "data__overdue"):
        if not overdue:  # the news that a drain lasts long is no move
            moves[node_id].append((at.timestamp(), MOVES[ScalingKind(kind)]))
    lives = []
    for pk, state, since, created in there.values_list("pk", "state", "since", "created_at"):
        so_far = moves[pk]
        if (so_far[-1][1] if so_far else NodePhase.PENDING) != _phase(state):
            so_far.append((since.timestamp(), _phase(state)))  # what history does not tell (any more)
        began = min(created.timestamp(), so_far[0][0]) if so_far else created.timestamp()
        lives.append(Life(began, tuple(so_far)))
    return lives


def _wanted(pool: NodePool, begin: datetime) -> list[tuple[float, int]]:
    told = ScalingEvent.objects.filter(pool=pool, after__isnull=False)
    known = list(told.filter(at__gte=begin).order_by("pk").values_list("at", "before", "after"))
    earlier = told.filter(at__lt=begin).order_by("-pk").values_list("after", flat=True).first()
    if earlier is None:
        earlier = known[0][1] if known and known[0][1] is not None else None
    first = pool.nodes_desired if earlier is None and not known else earlier
    found = [] if first is None else [(begin.timestamp(), first)]
    found += [(at.timestamp(), after) for at, _, after in known if after is not None]
    return found


def _phase(state: str) -> NodePhase:
    if state in PENDING:
        return NodePhase.PENDING
    if state in USABLE:
        return NodePhase.CURRENT
    return NodePhase.DRAINING if state == NodeState.DRAINING else NodePhase.GONE
