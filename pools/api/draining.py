"""Responses that list the nodes to drain when a pool shrinks, and the work on them."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from berth.server.api.responses import ResponseModel
from pools.api.capacity import pool_capacity
from pools.api.pool_shapes import NodePoolResponse, to_pool_response
from pools.models import NodePool
from pools.scale_down import NodeToDrain, list_nodes_to_drain

NODES_LISTED_MAX = 500


class DrainingNodeResponse(ResponseModel):
    """Node to drain, selected by its current work; the selection may change before the drain starts."""

    node: str
    pods: int
    not_preemptible: int = Field(description="Pods that the drain waits for without a time limit.")
    gpu_seconds_lost: int = Field(description="GPU-seconds since the start or the last checkpoint.")
    work: list[str] | None = Field(
        description="Workloads with pods on the node; null unless you are a platform admin."
    )
    blocked_by: str = Field(description="Disruption budget that blocks the drain; empty if there is none.")


class ScaledPoolResponse(NodePoolResponse):
    draining_count: int
    draining: list[DrainingNodeResponse] = Field(description="First 500 nodes to drain, in order.")


def scaled_pool_response(pool: NodePool, now: datetime) -> ScaledPoolResponse:
    """Return the response with a pool and its nodes to drain, as shown to platform admins."""
    base = to_pool_response(pool, pool_capacity([pool.pk]), is_admin=True)
    nodes_to_drain = list_nodes_to_drain(pool, pool.nodes_desired, now)
    listed = draining_node_responses(nodes_to_drain, is_admin=True)
    return ScaledPoolResponse(**base.model_dump(), draining_count=len(nodes_to_drain), draining=listed)


def draining_node_responses(
    nodes_to_drain: Sequence[NodeToDrain], *, is_admin: bool
) -> list[DrainingNodeResponse]:
    return [
        DrainingNodeResponse(
            node=each.node.name,
            pods=each.work.pods,
            not_preemptible=each.work.non_preemptible,
            gpu_seconds_lost=each.work.gpu_seconds,
            work=[str(work) for work in each.workloads] if is_admin else None,
            blocked_by=each.blocked_by,
        )
        for each in nodes_to_drain[:NODES_LISTED_MAX]
    ]
