"""Answers that name the nodes that leave a pool, and the work on them."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from berth.server.api.responses import Answer
from pools.api.capacity import room_of
from pools.api.pool_shapes import PoolAnswer, answer
from pools.models import NodePool
from pools.scale_down import Leaving, leaving

MOST_LISTED = 500


class LeavingAnswer(Answer):
    """As work stands now: what begins or ends until the node goes may change the choice."""

    node: str
    pods: int
    not_preemptible: int = Field(description="Pods that a drain waits for without limit.")
    gpu_seconds_lost: int = Field(description="Of work, were it stopped now.")
    work: list[str] | None = Field(
        description="What has pods on it; null for people who do not run the platform."
    )
    held_back: str = Field(description="The disruption budget that keeps it for now; empty: it goes at once.")


class ScaledAnswer(PoolAnswer):
    leaving_count: int
    leaving: list[LeavingAnswer] = Field(description="The nodes that go, in this order; the first 500.")


def with_leaving(pool: NodePool, now: datetime) -> ScaledAnswer:
    """For people who run the platform. `pool` has the counts of the selector."""
    shape = answer(pool, room_of([pool.pk]), running_it=True)
    going = leaving(pool, pool.wanted, now)
    listed = leaving_answers(going, running_it=True)
    return ScaledAnswer(**shape.model_dump(), leaving_count=len(going), leaving=listed)


def leaving_answers(going: Sequence[Leaving], *, running_it: bool) -> list[LeavingAnswer]:
    return [
        LeavingAnswer(
            node=each.node.name,
            pods=each.work.pods,
            not_preemptible=each.work.firm,
            gpu_seconds_lost=each.work.gpu_seconds,
            work=[str(work) for work in each.on_it] if running_it else None,
            held_back=each.held_back,
        )
        for each in going[:MOST_LISTED]
    ]
