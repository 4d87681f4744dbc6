"""Capacity of a pool over time, derived from its nodes and scaling events."""

from collections import defaultdict
from datetime import datetime, timedelta

from django.db.models import Q

from pools.engine.timeline import NodeHistory, NodePhase, TimelinePoint, build_timeline, downsample
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind

POINTS_MAX = 500
PHASE_BY_EVENT = {
    ScalingKind.READY: NodePhase.CURRENT,
    ScalingKind.UNCORDON: NodePhase.CURRENT,
    ScalingKind.DRAIN_ABORTED: NodePhase.CURRENT,
    ScalingKind.DRAIN: NodePhase.DRAINING,
    ScalingKind.INTERRUPTION: NodePhase.DRAINING,
    ScalingKind.LOST: NodePhase.GONE,
    ScalingKind.TERMINATE: NodePhase.GONE,
}


def capacity_over_time(
    pool: NodePool, *, now: datetime, span: timedelta, points_max: int = POINTS_MAX
) -> tuple[TimelinePoint, ...]:
    """Return up to `points_max` node counts from the last `span`. Times are Unix times."""
    begin = min(max(now - span, pool.created_at), now)
    points = build_timeline(
        _node_histories(pool, begin), _desired_nodes_changes(pool, begin), begin.timestamp(), now.timestamp()
    )
    return downsample(points, points_max, now.timestamp())


def _node_histories(pool: NodePool, begin: datetime) -> list[NodeHistory]:
    """Return the phases of every node that has existed since `begin`."""
    nodes = Node.objects.filter(Q(ended_at=None) | Q(ended_at__gte=begin), pool=pool)
    moves: dict[int, list[tuple[float, NodePhase]]] = defaultdict(list)
    events = ScalingEvent.objects.filter(pool=pool, kind__in=list(PHASE_BY_EVENT), node__in=nodes).order_by(
        "pk"
    )
    for node_id, at, kind, overdue in events.values_list("node_id", "at", "kind", "data__overdue"):
        if not overdue:  # a report of an overdue drain does not change the node's phase
            moves[node_id].append((at.timestamp(), PHASE_BY_EVENT[ScalingKind(kind)]))
    histories = []
    for pk, state, since, created in nodes.values_list("pk", "state", "since", "created_at"):
        recorded_moves = moves[pk]
        if (recorded_moves[-1][1] if recorded_moves else NodePhase.PENDING) != _phase_for_state(state):
            # The event that led to this state was never recorded or has been deleted.
            recorded_moves.append((since.timestamp(), _phase_for_state(state)))
        began = min(created.timestamp(), recorded_moves[0][0]) if recorded_moves else created.timestamp()
        histories.append(NodeHistory(began, tuple(recorded_moves)))
    return histories


def _desired_nodes_changes(pool: NodePool, begin: datetime) -> list[tuple[float, int]]:
    events = ScalingEvent.objects.filter(pool=pool, after__isnull=False)
    recent = list(events.filter(at__gte=begin).order_by("pk").values_list("at", "before", "after"))
    earlier = events.filter(at__lt=begin).order_by("-pk").values_list("after", flat=True).first()
    if earlier is None:
        earlier = recent[0][1] if recent and recent[0][1] is not None else None
    first = pool.nodes_desired if earlier is None and not recent else earlier
    changes = [] if first is None else [(begin.timestamp(), first)]
    changes += [(at.timestamp(), after) for at, _, after in recent if after is not None]
    return changes


def _phase_for_state(state: str) -> NodePhase:
    if state in PENDING:
        return NodePhase.PENDING
    if state in USABLE:
        return NodePhase.CURRENT
    return NodePhase.DRAINING if state == NodeState.DRAINING else NodePhase.GONE
