"""Choose placement strategies for pools set to `auto`."""

from dataclasses import replace

from berth.core.values.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.nodes import Nodes
from scheduler.engine.board.request_mix import RequestMix
from scheduler.engine.model import Pool, Strategy


def resolve_strategies(board: Board) -> Pool:
    """Replace the strategy `auto` in the pool's settings, and return the pool.

    It becomes `fragmentation` if nodes differ or if both whole GPUs and GPU shares are requested, otherwise
    `binpack`.
    """
    pool = board.configured_pool
    if Strategy.AUTO not in (pool.node_strategy, pool.device_strategy):
        return pool
    resolved = (
        Strategy.FRAGMENTATION
        if _has_mixed_nodes(board.nodes) or _has_mixed_requests(board.mix)
        else Strategy.BINPACK
    )
    return replace(
        pool,
        node_strategy=resolved if pool.node_strategy is Strategy.AUTO else pool.node_strategy,
        device_strategy=resolved if pool.device_strategy is Strategy.AUTO else pool.device_strategy,
    )


def _has_mixed_nodes(nodes: Nodes) -> bool:
    if "differ" not in nodes.static_cache:
        shapes = {(n.gpus, n.gpu_model, n.gpu_memory_mib, n.cpu, n.memory_mib) for n in nodes.nodes if n.gpus}
        nodes.static_cache["differ"] = len(shapes) > 1
    result: bool = nodes.static_cache["differ"]
    return result


def _has_mixed_requests(mix: RequestMix) -> bool:
    sizes = [milli for _, _, milli in mix.counts]
    return MILLI in sizes and min(sizes) < MILLI
