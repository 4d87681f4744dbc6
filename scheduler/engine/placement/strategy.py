"""Choose the placement strategies of pools that are set to `auto`."""

from dataclasses import replace

from berth.core.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.nodes import Nodes
from scheduler.engine.board.request_mix import Mix
from scheduler.engine.model import Pool, Strategy


def resolve_strategies(board: Board) -> Pool:
    """Return the pool with `auto` resolved: fragmentation for mixed nodes or requests, else binpack."""
    pool = board.pool_as_given
    if Strategy.AUTO not in (pool.node_strategy, pool.device_strategy):
        return pool
    word = Strategy.FRAGMENTATION if _differ(board.nodes) or _mixed(board.mix) else Strategy.BINPACK
    return replace(
        pool,
        node_strategy=word if pool.node_strategy is Strategy.AUTO else pool.node_strategy,
        device_strategy=word if pool.device_strategy is Strategy.AUTO else pool.device_strategy,
    )


def _differ(nodes: Nodes) -> bool:
    if "differ" not in nodes.lasting:
        shapes = {(n.gpus, n.gpu_model, n.gpu_memory_mib, n.cpu, n.memory_mib) for n in nodes.nodes if n.gpus}
        nodes.lasting["differ"] = len(shapes) > 1
    result: bool = nodes.lasting["differ"]
    return result


def _mixed(mix: Mix) -> bool:
    """Return whether both whole devices and fractions are requested."""
    sizes = [milli for _, _, milli in mix.counts]
    return MILLI in sizes and min(sizes) < MILLI
