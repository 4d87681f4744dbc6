"""Here we ask what one more node would be like, and how many more there could be."""

from berth.core.amounts import MILLI
from scheduler.engine.board import Board
from scheduler.engine.gang import Part
from scheduler.engine.matching import matches
from scheduler.engine.model import Node, NodeShape, NodeState


def could_add(board: Board) -> int:
    """How many nodes the pool may still grow by."""
    if board.pool.nodes_max is None or _shape(board) is None:
        return 0
    staying = sum(node.state is not NodeState.DRAINING for node in board.nodes.nodes)
    return max(0, board.pool.nodes_max - staying)


def fresh_nodes(board: Board, count: int) -> list[Node]:
    shape = _shape(board)
    if shape is None:
        return []
    width = len(str(count))
    return [
        Node(
            f"+{number:0{width}}", board.pool.name, shape.gpus, shape.gpu_model, shape.gpu_memory_mib,
            shape.cpu, shape.memory_mib, shape.max_pods, shape.labels, shape.taints,
        )
        for number in range(count)
    ]  # fmt: skip


def _shape(board: Board) -> NodeShape | None:
    """As the pool says, or as its first node is."""
    if board.pool.node_shape is not None or not board.nodes.nodes:
        return board.pool.node_shape
    node = board.nodes.nodes[0]
    return NodeShape(
        node.gpus, node.gpu_model, node.gpu_memory_mib, node.cpu, node.memory_mib, node.max_pods,
        node.labels, node.taints,
    )  # fmt: skip


def may_stand_on(part: Part, node: Node) -> bool:
    return matches(part.role, node)


def holds_one(part: Part, node: Node) -> bool:
    """Whether the node, empty, has enough for one replica."""
    request = part.request
    return (
        node.gpus >= request.devices
        and node.cpu >= request.cpu
        and node.memory_mib >= request.memory_mib
        and node.gpu_memory_mib >= request.gpu_memory_mib
        and node.max_pods > 0
    )


def most_capacity(board: Board) -> tuple[int, int, int]:
    """All the pool has, and could have if it grew to its maximum."""
    gpu = cpu = memory = 0
    more = could_add(board)
    counted = [node for node in board.nodes.nodes if node.state is not NodeState.DRAINING]
    for node, count in [(node, 1) for node in counted] + [(node, more) for node in fresh_nodes(board, 1)]:
        gpu += node.gpus * MILLI * count
        cpu += node.cpu * count
        memory += node.memory_mib * count
    return gpu, cpu, memory
