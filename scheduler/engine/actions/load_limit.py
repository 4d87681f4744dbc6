"""Scale down workloads on nodes whose CPU allocation exceeds a lowered load limit."""

from collections.abc import Iterator, Sequence

from berth.core.values.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.model import NodeState
from scheduler.engine.placement.overcommit import may_overcommit
from scheduler.engine.plan import Eviction, Kind, Reason
from scheduler.engine.preemption.victims.units import Victim, extra_replica_victims

Key = tuple[float | int | str, ...]


def enforce_load_limit(board: Board, choice: int) -> None:
    """Scale down elastic workloads on nodes that exceed their load limit.

    The workload closest to its maximum comes first. No workload is scaled below its minimum.
    """
    if min(board.nodes.cpu, default=0) >= 0:
        return
    for gang, victims in _select_victims(board, choice).items():
        _evict_victims(board, gang, victims)


def _select_victims(board: Board, choice: int) -> dict[Gang, list[Victim]]:
    """Return the replicas to remove, grouped by gang. The board is not changed."""
    start, chosen = board.log_position(), dict[Gang, list[Victim]]()
    for i, node in enumerate(board.nodes.nodes):
        if node.state is NodeState.DRAINING:
            continue
        while (victim := min(_removable_replicas(board, i, choice), key=_sort_key, default=None)) is not None:
            _remove_pods(board, victim)
            chosen.setdefault(victim.gang, []).append(victim)
    board.rewind(start)
    return chosen


def _removable_replicas(board: Board, i: int, choice: int) -> Iterator[Victim]:
    """Yield the extra replicas on the node that would not be placed there now."""
    if board.nodes.cpu[i] >= 0:
        return
    node = board.nodes.nodes[i]
    limit = node.cpu * board.nodes.cpu_load_limit // MILLI
    for gang in {move.gang: None for move in board.on_node[i].values()}:
        if (
            gang.choice != choice
            or not gang.is_elastic
            or gang.non_preemptible
            or _cpu_load(board, i, gang) <= limit
        ):
            continue
        for victim in extra_replica_victims(board, gang):
            here = (part.request.limit_cpu for part, pod in victim.pods if pod.node == node.name)
            if not victim.is_group and any(here):
                yield victim


def _cpu_load(board: Board, i: int, gang: Gang) -> int:
    """Return the sum of the pods' CPU limits on a node, in milli-CPU.

    The minimum replicas of every other gang that may overcommit CPU are excluded.
    """
    node = board.nodes.nodes[i]
    load = node.cpu * board.nodes.cpu_load_limit // MILLI - board.nodes.cpu[i]
    for other in {move.gang: None for move in board.on_node[i].values()}:
        if other is not gang and may_overcommit(other):
            for part in other.parts:
                here = sum(pod.node == node.name for pod in part.live.values())
                load -= min(here, part.role.min) * part.request.limit_cpu
    return load


def _sort_key(victim: Victim) -> Key:
    """Return a sort key: closest to the maximum first, then lowest priority, least lost work and newest."""
    workload = victim.gang.workload
    return (
        -victim.fulfilment, workload.priority, victim.lost_gpu_seconds,
        -max(victim.started, workload.submitted), victim.gang.name, victim.pods[0][0].role.name,
        -victim.index,
    )  # fmt: skip


def _evict_victims(board: Board, gang: Gang, victims: Sequence[Victim]) -> None:
    percent = board.nodes.cpu_load_limit * 100 / MILLI
    rule = f"the pool allocates at most {percent:g}% of a node's CPU"
    pods = tuple((part.role.name, pod.index) for victim in victims for part, pod in victim.pods)
    lost_gpu_seconds = sum(victim.lost_gpu_seconds for victim in victims)
    eviction = Eviction(
        Kind.SHRINK, gang.name, None, rule, pods, whole=False, lost_gpu_seconds=lost_gpu_seconds
    )
    with board.trial(gang, default_reason=Reason.WAITING_FOR_CAPACITY) as trial:
        for victim in victims:
            _remove_pods(board, victim)
        trial.accept(Kind.SHRINK, "the node's CPU allocation exceeds the load limit", (eviction,))


def _remove_pods(board: Board, victim: Victim) -> None:
    for part, pod in victim.pods:
        board.remove_pod(victim.gang, part, pod)
