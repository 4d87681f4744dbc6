"""REST responses with the nodes that a scale-down would drain, and the work on each node."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from berth.server.api.responses import ResponseModel
from pools.api.schemas.capacity import pool_capacity
from pools.api.schemas.pools import NodePoolResponse, to_pool_response
from pools.models import NodePool
from pools.scale_down import NodeToDrain, list_nodes_to_drain

NODES_LISTED_MAX = 500


class DrainingNodeResponse(ResponseModel):
    """Node that would be drained. Nodes that would lose the least work come first.

    A later request may list different nodes.
    """

    node: str
    pods: int
    not_preemptible: int = Field(
        description="Non-preemptible pods. The drain waits for them without a time limit."
    )
    gpu_seconds_lost: int = Field(description="GPU-seconds of work since the start or the last checkpoint.")
    work: list[str] | None = Field(
        description="Workloads with pods on the node; null unless you are a platform admin."
    )
    blocked_by: str = Field(description="Disruption budget that blocks the drain; empty if there is none.")


class ScaledPoolResponse(NodePoolResponse):
    draining_count: int
    draining: list[DrainingNodeResponse] = Field(description="First 500 nodes to drain, in order.")


def scaled_pool_response(pool: NodePool, now: datetime) -> ScaledPoolResponse:
    """Return the response for a pool and the nodes to drain. Only platform admins may see it."""
    base = to_pool_response(pool, pool_capacity([pool.pk]), is_admin=True)
    nodes_to_drain = list_nodes_to_drain(pool, pool.nodes_desired, now)
    listed = draining_node_responses(nodes_to_drain, is_admin=True)
    return ScaledPoolResponse(**base.model_dump(), draining_count=len(nodes_to_drain), draining=listed)


def draining_node_responses(
    nodes_to_drain: Sequence[NodeToDrain], *, is_admin: bool
) -> list[DrainingNodeResponse]:
    return [
        DrainingNodeResponse(
            node=node_to_drain.node.name,
            pods=node_to_drain.work.pods,
            not_preemptible=node_to_drain.work.non_preemptible,
            gpu_seconds_lost=node_to_drain.work.gpu_seconds,
            work=[str(work) for work in node_to_drain.workloads] if is_admin else None,
            blocked_by=node_to_drain.blocked_by,
        )
        for node_to_drain in nodes_to_drain[:NODES_LISTED_MAX]
    ]
