"""Write scaling events of pools."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pools.models import Node, NodePool, ScalingEvent
from pools.models.scaling import ScalingKind


def write(
    pool: NodePool,
    kind: ScalingKind,
    reason: str,
    *,
    at: datetime,
    node: Node | None = None,
    before: int | None = None,
    after: int | None = None,
    **data: Any,
) -> ScalingEvent:
    """Write a scaling event in the caller's transaction. `before` and `after` are desired node counts."""
    return ScalingEvent.objects.create(
        pool=pool, kind=kind, reason=reason, at=at, node=node, before=before, after=after, data=data
    )


def write_many(
    pool: NodePool,
    kind: ScalingKind,
    nodes: Iterable[tuple[Node, str]],
    *,
    at: datetime,
    after: int | None = None,
) -> None:
    """Write a scaling event for each (node, reason) pair in `nodes`, in one statement."""
    ScalingEvent.objects.bulk_create(
        ScalingEvent(pool=pool, kind=kind, reason=reason, at=at, node=node, after=after)
        for node, reason in nodes
    )
