"""Shape and number of the nodes that a pool could still add."""

from collections.abc import Sequence

from berth.core.values.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.model import Node, NodeShape, NodeState, Pool, Request


def addable_node_count(board: Board) -> int:
    """Return how many more nodes the pool may add now."""
    if board.pool.nodes_max is None or _board_node_shape(board) is None:
        return 0
    return max(0, board.pool.nodes_max - _count_nodes_not_draining(board))


def eventually_addable_node_count(board: Board) -> int:
    """Return how many more nodes the pool could add, even if it is paused, drained or failing now."""
    pool = board.pool
    maximum = pool.nodes_max if pool.nodes_ever is None else pool.nodes_ever
    if maximum is None or _board_node_shape(board) is None:
        return 0
    return max(0, maximum - _count_nodes_not_draining(board))


def make_new_nodes(board: Board, count: int) -> list[Node]:
    shape = _board_node_shape(board)
    if shape is None:
        return []
    width = len(str(count))
    return [make_node(f"+{number:0{width}}", board.pool.name, shape) for number in range(count)]


def make_node(name: str, pool: str, shape: NodeShape) -> Node:
    return Node(
        name, pool, shape.gpus, shape.gpu_model, shape.gpu_memory_mib, shape.cpu, shape.memory_mib,
        shape.max_pods, shape.labels, shape.taints, missing_features=shape.missing_features,
    )  # fmt: skip


def _count_nodes_not_draining(board: Board) -> int:
    return sum(node.state is not NodeState.DRAINING for node in board.nodes.nodes)


def _board_node_shape(board: Board) -> NodeShape | None:
    return new_node_shape(board.pool, board.nodes.nodes)


def new_node_shape(pool: Pool, nodes: Sequence[Node]) -> NodeShape | None:
    """Return the shape of the pool's new nodes, or None if it is unknown."""
    if pool.node_shape is not None or not nodes:
        return pool.node_shape
    return nodes[0].shape


def request_and_capacity(pool: Pool, request: Request, node: Node) -> list[tuple[str, int, int]]:
    """Return (resource, request of one replica, capacity of an empty node) for each resource."""
    by_limits = request.devices > 0  # CPU-only workloads are placed by their requests
    return [
        ("gpu", request.devices * MILLI if request.gpu in (0, MILLI) else request.amounts.gpu,
         node.gpus * (MILLI if request.gpu in (0, MILLI) else request.gpu)),
        ("gpu_memory_mib", request.gpu_memory_mib, node.gpu_memory_mib),
        ("cpu", request.limit_cpu if by_limits else request.cpu, node.cpu * pool.cpu_load_limit // MILLI),
        ("memory_mib", request.limit_memory_mib if by_limits else request.memory_mib, node.memory_mib),
        ("pods", 1, node.max_pods),
    ]  # fmt: skip
