"""Check whether a gang could ever fit into a pool at its maximum size, using only node shapes and totals.

A gang that passes this check may still not fit.
"""

from collections.abc import Hashable, Iterable, Sequence

from berth.core.values.amounts import MILLI, RESOURCES
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, BoardRole, Gang, ReplicaRequest, Scope, arrangements
from scheduler.engine.board.ledger import GPU
from scheduler.engine.board.matching import matches, meets_constraints, node_constraints
from scheduler.engine.explain.mismatches import mismatch_numbers
from scheduler.engine.explain.new_nodes import (
    eventually_addable_node_count,
    make_new_nodes,
    request_and_capacity,
)
from scheduler.engine.model import Node, NodeState, Pool, Request, Role
from scheduler.engine.plan import Numbers, Reason

Obstacle = tuple[Reason, Numbers]
NodeCounts = tuple[tuple[Node, int], ...]  # an example of each node size, and the number of such nodes
Sums = tuple[int, int, int, int]  # totals: milli-GPU, milli-CPU, MiB and pods
RESOURCE_NAMES = (*RESOURCES, "pods")
_NOUNS = ("GPUs", "GPU memory", "CPUs", "memory", "pods")  # must match the names in `request_and_capacity`


def permanent_obstacle(board: Board, gang: Gang, cache_key: Hashable = None) -> Obstacle | None:
    """Return the reason why the gang can never fit into the pool, or None if it may fit.

    Gangs with identical requests and role names have the same `cache_key`.
    """
    if cache_key is None:
        return _gang_obstacle(board, gang)
    static_cache, key = board.nodes.static_cache, ("never", cache_key)
    if key not in static_cache:
        static_cache[key] = _gang_obstacle(board, gang)
    obstacle: Obstacle | None = static_cache[key]
    return obstacle


def _gang_obstacle(board: Board, gang: Gang) -> Obstacle | None:
    first: Obstacle | None = None
    for arrangement in arrangements(gang):
        obstacle = _arrangement_obstacle(board, arrangement)
        if obstacle is None:
            return None
        first = first or obstacle
    return first


def _arrangement_obstacle(board: Board, arrangement: Arrangement) -> Obstacle | None:
    if _has_unknown_shape(board):
        return None
    for need in arrangement:
        obstacle = _role_blocker(board, need.part)
        if obstacle is not None:
            return obstacle
    return _pool_obstacle(board, arrangement) or _topology_obstacle(board, arrangement)


def _has_unknown_shape(board: Board) -> bool:
    """Return whether the pool can add nodes whose size is unknown."""
    return any(not (node.gpus or node.cpu or node.memory_mib) for node, _ in _addable_nodes(board))


def _addable_nodes(board: Board) -> NodeCounts:
    more = eventually_addable_node_count(board)
    return tuple((node, more) for node in make_new_nodes(board, 1)) if more else ()


def _role_blocker(board: Board, part: BoardRole) -> Obstacle | None:
    key = "role never", part.role.name, part.request, node_constraints(part.role)
    static_cache = board.nodes.static_cache
    if key not in static_cache:
        static_cache[key] = _find_role_blocker(board, part.role)
    obstacle: Obstacle | None = static_cache[key]
    return obstacle


def _find_role_blocker(board: Board, role: Role) -> Obstacle | None:
    rooms = []
    for node, _ in _count_matching_nodes(board, role):
        room = request_and_capacity(board.pool, role.request, node)
        if all(requested <= has for _, requested, has in room):
            return None
        rooms.append(room)
    if not rooms:
        return Reason.NO_MATCHING_NODE, mismatch_numbers(role, board.nodes.nodes, _addable_nodes(board))
    # Filter the nodes by one resource after another. Report the first resource that rules out all of them.
    beside: list[str] = []
    for column, noun in enumerate(_NOUNS):
        resource, requested, _ = rooms[0][column]
        most = max(room[column][2] for room in rooms)
        sufficient = [room for room in rooms if room[column][2] >= requested]
        if not sufficient:
            return Reason.EXCEEDS_NODE_SHAPE, {
                "role": role.name, "resource": resource, "requested": requested, "most": most,
                "beside": " and ".join(beside) or None,
            }  # fmt: skip
        if len(sufficient) < len(rooms):
            beside.append(noun)
        rooms = sufficient
    raise AssertionError("unreachable: a node with enough of every resource ends the search earlier")


def _count_matching_nodes(board: Board, role: Role) -> NodeCounts:
    """Return the number of existing and addable nodes of each size that match the role.

    Draining nodes are not counted.
    """
    key = "nodes for", node_constraints(role)
    static_cache = board.nodes.static_cache
    if key not in static_cache:
        nodes, new_nodes = _nodes_not_draining(board), _addable_nodes(board)
        if board.matcher.mask(role) is not None:
            nodes = [entry for entry in nodes if meets_constraints(role, entry[0])]
        static_cache[key] = _count_by_size(
            [*nodes, *(entry for entry in new_nodes if meets_constraints(role, entry[0]))]
        )
    node_counts: NodeCounts = static_cache[key]
    return node_counts


def _nodes_not_draining(board: Board) -> list[tuple[Node, int]]:
    return [(node, 1) for node in board.nodes.nodes if node.state is not NodeState.DRAINING]


def _count_by_size(nodes: Iterable[tuple[Node, int]]) -> NodeCounts:
    sizes: dict[Hashable, tuple[Node, int]] = {}
    for node, count in nodes:
        size = node.gpus, node.gpu_memory_mib, node.cpu, node.memory_mib, node.max_pods
        first, before = sizes.get(size, (node, 0))
        sizes[size] = first, before + count
    return tuple(sizes.values())


def _pool_obstacle(board: Board, arrangement: Arrangement) -> Obstacle | None:
    requested, most = (
        _requested_total(arrangement),
        _max_capacity(board, [need.part.role for need in arrangement]),
    )
    for kind, resource in enumerate(RESOURCE_NAMES):
        if requested[kind] > most[kind]:
            return Reason.EXCEEDS_POOL_MAX, _shortage_numbers(resource, requested[kind], most[kind])
    for need in arrangement:
        fitting = _max_replicas(board.pool, need.part.role, _count_matching_nodes(board, need.part.role))
        if need.count > fitting:
            numbers = {"role": need.part.role.name, **_shortage_numbers("replicas", need.count, fitting)}
            return Reason.EXCEEDS_POOL_MAX, numbers
    return None


def _shortage_numbers(resource: str, requested: int, most: int) -> dict[str, int | float | str | None]:
    return {"resource": resource, "requested": requested, "most": most, "missing": requested - most}


def _requested_total(arrangement: Sequence[ReplicaRequest]) -> Sums:
    """Return the arrangement's total limits or, if it requests no GPUs, its total requests.

    GPU memory is not counted as GPUs.
    """
    by_limits = any(need.part.request.devices for need in arrangement)
    gpu = cpu = memory = pods = 0
    for need in arrangement:
        request, count = need.part.request, need.count
        gpu += 0 if request.gpu_memory_mib else need.part.amounts[GPU] * count
        cpu += (request.limit_cpu if by_limits else request.cpu) * count
        memory += (request.limit_memory_mib if by_limits else request.memory_mib) * count
        pods += count
    return gpu, cpu, memory, pods


def _max_capacity(board: Board, roles: Sequence[Role]) -> Sums:
    kinds = dict.fromkeys(map(node_constraints, roles))
    key = "most", tuple(kinds)
    static_cache = board.nodes.static_cache
    if key not in static_cache:
        nodes = (
            _count_matching_nodes(board, roles[0])
            if len(kinds) == 1
            else [*_nodes_not_draining(board), *_addable_nodes(board)]
        )
        static_cache[key] = _total_capacity(board.pool, roles, nodes)
    sums: Sums = static_cache[key]
    return sums


def _total_capacity(pool: Pool, roles: Sequence[Role], nodes: Iterable[tuple[Node, int]]) -> Sums:
    gpu = cpu = memory = pods = 0
    for node, count in nodes:
        if any(matches(role, node) for role in roles):
            gpu += node.gpus * MILLI * count
            cpu += node.cpu * pool.cpu_load_limit // MILLI * count
            memory += node.memory_mib * count
            pods += node.max_pods * count
    return gpu, cpu, memory, pods


def _max_replicas(pool: Pool, role: Role, nodes: Iterable[tuple[Node, int]]) -> int:
    return sum(_max_replicas_on_node(pool, role, node) * count for node, count in nodes)


def _max_replicas_on_node(pool: Pool, role: Role, node: Node) -> int:
    request, counts = role.request, [node.max_pods]
    by_limits = request.devices > 0
    cpu = request.limit_cpu if by_limits else request.cpu
    memory = request.limit_memory_mib if by_limits else request.memory_mib
    if cpu:
        counts.append(node.cpu * pool.cpu_load_limit // MILLI // cpu)
    if memory:
        counts.append(node.memory_mib // memory)
    if request.devices:
        counts.append(_max_replicas_by_devices(request, node))
    if role.spread_per_node is not None:
        counts.append(role.spread_per_node)
    return min(counts)


def _max_replicas_by_devices(request: Request, node: Node) -> int:
    milli = request.gpu
    if request.gpu_memory_mib:
        has = node.gpu_memory_mib
        milli = -(-MILLI * request.gpu_memory_mib // has) if has else MILLI + 1
    if node.gpus < request.devices or not 0 < milli <= MILLI:
        return 0
    return node.gpus * (MILLI // milli) // request.devices


def _topology_obstacle(board: Board, arrangement: Arrangement) -> Obstacle | None:
    scopes = dict.fromkeys(
        scope for need in arrangement for scope in need.scopes if scope.constraint.required
    )
    for scope in scopes:
        obstacle = _scope_obstacle(board, scope, [need for need in arrangement if scope in need.scopes])
        if obstacle is not None:
            return obstacle
    return None


def _scope_obstacle(board: Board, scope: Scope, needs: Sequence[ReplicaRequest]) -> Obstacle | None:
    level = scope.constraint.required
    assert level is not None
    new_nodes = _addable_nodes(board)
    if any(level not in node.labels for node, _ in new_nodes):
        return None  # the domain of new nodes is unknown
    closest: tuple[float, Numbers] | None = None
    for domain in _domain_nodes(board, level, new_nodes):
        short = _domain_shortage(board, needs, domain)
        if short is None:
            return None
        _, requested, most = short
        if closest is None or most / requested > closest[0]:
            closest = most / requested, {"level": level, **_shortage_numbers(*short)}
    if closest is None:  # no node has the label, so there are no domains
        replicas = sum(need.count for need in needs)
        closest = 0.0, {"level": level, **_shortage_numbers("replicas", replicas, 0)}
    return Reason.EXCEEDS_DOMAIN, closest[1]


def _domain_shortage(
    board: Board, needs: Sequence[ReplicaRequest], domain: NodeCounts
) -> tuple[str, int, int] | None:
    """Return (resource, requested, capacity) for a resource that would be insufficient even if the domain
    were empty, or None.
    """
    requested, sums = (
        _requested_total(needs),
        _total_capacity(board.pool, [need.part.role for need in needs], domain),
    )
    for kind, resource in enumerate(RESOURCE_NAMES):
        if requested[kind] > sums[kind]:
            return resource, requested[kind], sums[kind]
    for need in needs:
        role = need.part.role
        fitting = _max_replicas(board.pool, role, _matching_nodes(role, domain))
        if need.count > fitting:
            return "replicas", need.count, fitting
    return None


def _domain_nodes(board: Board, level: str, new_nodes: NodeCounts) -> Iterable[NodeCounts]:
    """Yield the nodes of each domain, including new nodes that would join it.

    At the end, yield the new nodes on their own.
    """
    nodes = board.nodes.nodes
    for domain in board.topology.domains(level).values():
        staying = [nodes[i] for i in sorted(domain) if nodes[i].state is not NodeState.DRAINING]
        joining = [
            (new, more)
            for new, more in new_nodes
            if staying and new.labels[level] == staying[0].labels[level]
        ]
        yield (*((node, 1) for node in staying), *joining)
    if new_nodes:
        yield new_nodes


def _matching_nodes(role: Role, nodes: NodeCounts) -> NodeCounts:
    return tuple((node, count) for node, count in nodes if meets_constraints(role, node))
