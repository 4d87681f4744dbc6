"""Responses with the nodes that a smaller pool drains, and the work on them."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from berth.server.api.responses import Answer
from pools.api.capacity import pool_capacity
from pools.api.pool_shapes import PoolAnswer, answer
from pools.models import NodePool
from pools.scale_down import NodeToDrain, draining

LISTED_MAX = 500


class DrainingNodeAnswer(Answer):
    """Node to drain, chosen by the current work; the choice may change before the drain starts."""

    node: str
    pods: int
    not_preemptible: int = Field(description="Pods that the drain waits for without a time limit.")
    gpu_seconds_lost: int = Field(description="GPU seconds since start or the last checkpoint.")
    work: list[str] | None = Field(
        description="Workloads with pods on the node; null unless you are a platform admin."
    )
    blocked_by: str = Field(description="Disruption budget that blocks the drain; empty if none does.")


class ScaledAnswer(PoolAnswer):
    draining_count: int
    draining: list[DrainingNodeAnswer] = Field(description="First 500 nodes to drain, in order.")


def with_draining(pool: NodePool, now: datetime) -> ScaledAnswer:
    """Return the response for platform admins; `pool` comes from the selector with its counts."""
    shape = answer(pool, pool_capacity([pool.pk]), running_it=True)
    going = draining(pool, pool.nodes_desired, now)
    listed = draining_answers(going, running_it=True)
    return ScaledAnswer(**shape.model_dump(), draining_count=len(going), draining=listed)


def draining_answers(going: Sequence[NodeToDrain], *, running_it: bool) -> list[DrainingNodeAnswer]:
    return [
        DrainingNodeAnswer(
            node=each.node.name,
            pods=each.work.pods,
            not_preemptible=each.work.non_preemptible,
            gpu_seconds_lost=each.work.gpu_seconds,
            work=[str(work) for work in each.workloads] if running_it else None,
            blocked_by=each.blocked_by,
        )
        for each in going[:LISTED_MAX]
    ]
