"""Split gangs into the smallest units that can be evicted without breaking a gang."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from berth.core.values.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import (
    BoardGroup,
    BoardRole,
    Gang,
    compute_lost_gpu_seconds,
    current_max,
    leaf_parts,
    pod_gpu_milli,
)
from scheduler.engine.board.ledger import NOTHING, QueueAccount
from scheduler.engine.model import Pod, PodState

PlacedPod = tuple[BoardRole, Pod]
EvictedByQueue = dict[QueueAccount, tuple[int, int, int]]  # evicted amounts of each project and department
# A GPU that may idle after the eviction costs as much as half an hour of lost work.
IDLE_SECONDS = 1800


@dataclass(slots=True, eq=False)
class Victim:
    """Pods of a gang that are evicted together: an extra replica, an optional group, or the entire gang."""

    gang: Gang
    pods: tuple[PlacedPod, ...]
    is_gang: bool  # whether the entire gang stops
    # Amounts of the gang's extra replicas. They are evicted before its core.
    extra_amounts: tuple[int, int, int] = (0, 0, 0)
    fulfilment: float = 0.0
    lost_gpu_seconds: int = 0
    at: int = 0  # time at which lost work was counted
    # Whether the victim is an optional group of the gang. Its roles may fall below their minimum.
    is_group: bool = False
    amounts: tuple[int, int, int] = field(init=False)
    started: int = field(init=False)
    index: int = field(init=False)
    # Cached result of `PreemptionPolicy.victim_key`.
    cached_key: tuple[float | int | str, ...] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if len(self.pods) == 1:
            ((part, pod),) = self.pods
            self.amounts = (pod_gpu_milli(pod), part.amounts[1], part.amounts[2])
            self.started, self.index = pod.started, pod.index
            return
        gpu = cpu = memory = 0
        for part, pod in self.pods:
            gpu += pod_gpu_milli(pod)
            cpu += part.amounts[1]
            memory += part.amounts[2]
        self.amounts = (gpu, cpu, memory)
        self.started = max((pod.started for _, pod in self.pods), default=0)
        self.index = max((pod.index for _, pod in self.pods), default=0)

    @property
    def cost_gpu_seconds(self) -> int:
        """Cost of the eviction in GPU-seconds: the work that is lost, and the freed GPUs that may be idle
        afterwards.
        """
        return self.lost_gpu_seconds + IDLE_SECONDS * self.amounts[0] // MILLI


def add_evicted_amounts(evicted: EvictedByQueue, victim: Victim) -> None:
    for queue in victim.gang.account.path:
        gpu, cpu, memory = evicted.get(queue, NOTHING)
        evicted[queue] = gpu + victim.amounts[0], cpu + victim.amounts[1], memory + victim.amounts[2]


def gang_as_victim(board: Board, gang: Gang) -> Victim:
    """Return the entire gang as one victim, cached until the gang's pods or the board's time changes."""
    result = gang.gang_victim
    if not isinstance(result, Victim) or result.at != board.now:
        result = gang.gang_victim = _build_gang_victim(board, gang)
    return result


def _build_gang_victim(board: Board, gang: Gang) -> Victim:
    pods = tuple((part, pod) for part in gang.parts for pod in part.pods_in_order)
    lost_gpu_seconds = sum(compute_lost_gpu_seconds(gang, pod, board.now) for _, pod in pods)
    extra_amounts = [0, 0, 0]
    for part in gang.parts:
        spare = min(part.replica_count - part.role.min, len(part.live))
        if spare > 0:
            extra_amounts = [
                sum_ + spare * amount for sum_, amount in zip(extra_amounts, part.amounts, strict=True)
            ]
    return Victim(
        gang,
        pods,
        True,
        (extra_amounts[0], extra_amounts[1], extra_amounts[2]),
        0.0,
        lost_gpu_seconds,
        board.now,
    )


def single_pod_victim(board: Board, gang: Gang, part: BoardRole, pod: Pod) -> Victim:
    """Return one pod as a victim: an extra replica, or a pod to be moved."""
    return Victim(
        gang,
        ((part, pod),),
        False,
        (0, 0, 0),
        part.fulfilment(),
        compute_lost_gpu_seconds(gang, pod, board.now),
    )


def extra_replica_victims(board: Board, gang: Gang) -> Iterator[Victim]:
    """Yield the victims that can be evicted without the gang falling below its minimum, newest replicas
    first.
    """
    for part in gang.parts:
        if part.replica_count > part.role.min and part.role.scale_with is None:
            followers = _dependent_replicas(gang, part)
            for index in sorted(part.live, reverse=True):
                victim = single_pod_victim(board, gang, part, part.live[index])
                if followers:
                    lost_gpu_seconds = victim.lost_gpu_seconds + sum(
                        compute_lost_gpu_seconds(gang, pod, board.now) for _, pod in followers
                    )
                    victim = replace(
                        victim, pods=(*victim.pods, *followers), lost_gpu_seconds=lost_gpu_seconds
                    )
                yield victim
    if not gang.simple:
        yield from _optional_children(board, gang, gang.root)


def _dependent_replicas(gang: Gang, leader: BoardRole) -> tuple[PlacedPod, ...]:
    """Return the replicas that must be evicted when `leader` loses a replica, because their roles scale with
    it.
    """
    return tuple(
        (part, part.live[index])
        for part in gang.parts
        if part.role.scale_with is not None and part.role.scale_with.role == leader.role.name
        for index in sorted(part.live, reverse=True)[
            : max(0, part.replica_count - current_max(gang, part, -1))
        ]
    )


def _optional_children(board: Board, gang: Gang, section: BoardGroup) -> Iterator[Victim]:
    """Yield a victim for each running child that its group does not need to meet its minimum."""
    running = [child for child in section.children if any(part.live for part in leaf_parts(child))]
    spare = sum(child.meets_minimum for child in section.children) > section.need
    for child in reversed(running):
        pods = tuple((part, pod) for part in leaf_parts(child) for pod in part.pods_in_order)
        if spare or not child.meets_minimum:
            lost_gpu_seconds = sum(compute_lost_gpu_seconds(gang, pod, board.now) for _, pod in pods)
            yield Victim(gang, pods, False, (0, 0, 0), 1.0, lost_gpu_seconds, is_group=True)
        elif isinstance(child, BoardGroup):
            yield from _optional_children(board, gang, child)


def is_within_min_runtime(board: Board, gang: Gang, seconds: int) -> bool:
    """Return whether the gang has run for less than its minimum runtime of `seconds`."""
    started = gang.workload.started
    if started is None:
        running = [
            pod.started for part in gang.parts for pod in part.live.values() if pod.state is PodState.RUNNING
        ]
        started = min(running, default=None)
    return started is not None and board.now - started < seconds
