"""Pending reasons that describe pools with too few ready nodes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pools.models import Node, NodePool
from pools.selectors import is_operational, ready_threshold
from scheduler.engine.plan import Blocker, Reason, Rejection
from scheduler.loop.observe.nodes import NodeRow

ABOUT_CAPACITY = (Reason.WAITING_FOR_CAPACITY, Reason.WAITING_FOR_VICTIMS, Reason.WAITING_FOR_SCALE_UP)


@dataclass(frozen=True, slots=True)
class PoolReadiness:
    """Readiness of a pool that does not accept workloads yet because too few nodes are ready."""

    pool: str
    ready: int
    needed: int
    stop_reason: str = ""  # reason why no more nodes are added to the pool, as a clause

    def __str__(self) -> str:
        if self.stop_reason and self.ready < self.needed:
            return f"Pool {self.pool} accepts no workloads: {self.stop_reason}."
        nodes = "1 node is" if self.needed == 1 else f"{self.needed} nodes are"
        return f"Pool {self.pool} accepts workloads once {nodes} ready; {self.ready} ready so far."


def pools_below_threshold(pools: Iterable[NodePool], nodes: Iterable[NodeRow]) -> Mapping[str, PoolReadiness]:
    ready = Counter(node.pool_id for node in nodes if node.state == Node.State.READY)
    return {
        pool.name: PoolReadiness(pool.name, ready[pool.pk], ready_threshold(pool), _stop_reason(pool))
        for pool in pools
        if not is_operational(pool)
    }


def _stop_reason(pool: NodePool) -> str:
    if pool.expires_at is not None and pool.ticked_at is not None and pool.expires_at <= pool.ticked_at:
        return "the pool is drained and gets no nodes until it is resumed"
    if pool.paused:
        return "the pool is paused and gets no nodes until it is resumed"
    return "node provisioning has stopped after failed boots" if pool.provisioning_stopped else ""


def with_pool_readiness(
    rejections: Iterable[Rejection], below_threshold: Mapping[str, PoolReadiness]
) -> tuple[Rejection, ...]:
    """Return the rejections.

    In pools with too few ready nodes, all capacity blockers are replaced by one blocker about nodes.
    """
    return tuple(
        replace(
            rejection, blockers=_with_readiness_blocker(rejection.blockers, below_threshold[rejection.pool])
        )
        if rejection.pool in below_threshold
        else rejection
        for rejection in rejections
    )


def _with_readiness_blocker(blockers: Sequence[Blocker], pool: PoolReadiness) -> tuple[Blocker, ...]:
    replaced = [blocker for blocker in blockers if blocker.reason in ABOUT_CAPACITY]
    if not replaced:
        return tuple(blockers)
    numbers: dict[str, int | float | str | None] = {}
    for blocker in reversed(replaced):
        numbers |= blocker.numbers
    numbers |= {"ready_nodes": pool.ready, "needed_nodes": pool.needed}
    readiness = Blocker(Reason.WAITING_FOR_SCALE_UP, str(pool), numbers)
    first = next(blocker for blocker in blockers if blocker.reason in ABOUT_CAPACITY)
    return tuple(
        readiness if blocker is first else blocker
        for blocker in blockers
        if blocker is first or blocker.reason not in ABOUT_CAPACITY
    )
