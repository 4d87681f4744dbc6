"""Here we settle by which strategy a pool places that leaves the choice to us."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from berth.core.amounts import MILLI
from scheduler.engine.gang import Gang
from scheduler.engine.model import Node, Pool, Strategy


def settled(pool: Pool, nodes: Sequence[Node], gangs: Iterable[Gang]) -> Pool:
    """Fragmentation where nodes differ, or fractions and whole devices are both asked for; else binpack."""
    if Strategy.AUTO not in (pool.node_strategy, pool.device_strategy):
        return pool
    word = Strategy.FRAGMENTATION if _differ(nodes) or _mixed(gangs) else Strategy.BINPACK
    return replace(
        pool,
        node_strategy=word if pool.node_strategy is Strategy.AUTO else pool.node_strategy,
        device_strategy=word if pool.device_strategy is Strategy.AUTO else pool.device_strategy,
    )


def _differ(nodes: Sequence[Node]) -> bool:
    shapes = {(n.gpus, n.gpu_model, n.gpu_memory_mib, n.cpu, n.memory_mib) for n in nodes if n.gpus}
    return len(shapes) > 1


def _mixed(gangs: Iterable[Gang]) -> bool:
    """Whether some ask for whole devices and some for less than one."""
    whole = shared = False
    for gang in gangs:
        for part in gang.parts:
            if part.request.devices:
                whole, shared = whole or part.milli == MILLI, shared or part.milli < MILLI
        if whole and shared:
            return True
    return False
