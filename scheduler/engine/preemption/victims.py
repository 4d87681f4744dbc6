"""Split allocations into the smallest units that can be evicted without breaking a gang."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import (
    BoardGroup,
    BoardRole,
    Gang,
    gpus_of,
    leaves,
    lost_gpu_seconds_of,
    most_now,
)
from scheduler.engine.model import Pod, PodState

Held = tuple[BoardRole, Pod]


@dataclass(slots=True, eq=False)
class Victim:
    """Pods of one gang that are evicted together: a growth replica, an optional child, or the rest."""

    gang: Gang
    pods: tuple[Held, ...]
    whole: bool  # True: the gang stops
    growth: tuple[int, int, int] = (0, 0, 0)  # for a whole gang: growth that could be evicted before its core
    fulfilment: float = 0.0
    lost_gpu_seconds: int = 0
    at: int = 0  # time at which lost work was counted
    is_group: bool = False  # an optional child: its roles may go below their minimum
    amounts: tuple[int, int, int] = field(init=False)
    started: int = field(init=False)
    index: int = field(init=False)
    place: tuple[float | int | str, ...] | None = field(init=False, default=None)  # cached `inside_key`

    def __post_init__(self) -> None:
        if len(self.pods) == 1:
            ((part, pod),) = self.pods
            self.amounts = (gpus_of(pod), part.amounts[1], part.amounts[2])
            self.started, self.index = pod.started, pod.index
            return
        gpu = cpu = memory = 0
        for part, pod in self.pods:
            gpu += gpus_of(pod)
            cpu += part.amounts[1]
            memory += part.amounts[2]
        self.amounts = (gpu, cpu, memory)
        self.started = max((pod.started for _, pod in self.pods), default=0)
        self.index = max((pod.index for _, pod in self.pods), default=0)


def whole(board: Board, gang: Gang) -> Victim:
    """Return all pods of the gang as one victim."""
    result = gang.whole_victim
    if not isinstance(result, Victim) or result.at != board.now:
        result = gang.whole_victim = _whole(board, gang)
    return result


def _whole(board: Board, gang: Gang) -> Victim:
    pods = tuple((part, pod) for part in gang.parts for pod in part.in_order)
    lost_gpu_seconds = sum(lost_gpu_seconds_of(gang, pod, board.now) for _, pod in pods)
    growth = [0, 0, 0]
    for part in gang.parts:
        spare = min(part.count - part.role.min, len(part.live))
        if spare > 0:
            growth = [sum_ + spare * amount for sum_, amount in zip(growth, part.amounts, strict=True)]
    return Victim(gang, pods, True, (growth[0], growth[1], growth[2]), 0.0, lost_gpu_seconds, board.now)


def single(board: Board, gang: Gang, part: BoardRole, pod: Pod) -> Victim:
    """Return one pod as a victim: a growth replica, or a pod to be moved."""
    return Victim(
        gang, ((part, pod),), False, (0, 0, 0), part.fulfilment(), lost_gpu_seconds_of(gang, pod, board.now)
    )


def growth(board: Board, gang: Gang) -> Iterator[Victim]:
    """Yield victims without which the gang stays complete, newest replicas first."""
    for part in gang.parts:
        if part.count > part.role.min and part.role.scale_with is None:
            tied = _followers(gang, part)
            for index in sorted(part.live, reverse=True):
                victim = single(board, gang, part, part.live[index])
                if tied:
                    lost_gpu_seconds = victim.lost_gpu_seconds + sum(
                        lost_gpu_seconds_of(gang, pod, board.now) for _, pod in tied
                    )
                    victim = replace(victim, pods=(*victim.pods, *tied), lost_gpu_seconds=lost_gpu_seconds)
                yield victim
    if not gang.simple:
        yield from _optional(board, gang, gang.root)


def _followers(gang: Gang, leader: BoardRole) -> tuple[Held, ...]:
    """Return the replicas of following roles that must go when the leader has one replica less."""
    return tuple(
        (part, part.live[index])
        for part in gang.parts
        if part.role.scale_with is not None and part.role.scale_with.role == leader.role.name
        for index in sorted(part.live, reverse=True)[: max(0, part.count - most_now(gang, part, -1))]
    )


def _optional(board: Board, gang: Gang, section: BoardGroup) -> Iterator[Victim]:
    """Yield children that run although the group does not need them."""
    running = [child for child in section.children if any(part.live for part in leaves(child))]
    spare = sum(child.is_whole for child in section.children) > section.need
    for child in reversed(running):
        pods = tuple((part, pod) for part in leaves(child) for pod in part.in_order)
        if spare or not child.is_whole:
            lost_gpu_seconds = sum(lost_gpu_seconds_of(gang, pod, board.now) for _, pod in pods)
            yield Victim(gang, pods, False, (0, 0, 0), 1.0, lost_gpu_seconds, is_group=True)
        elif isinstance(child, BoardGroup):
            yield from _optional(board, gang, child)


def within_min_runtime(board: Board, gang: Gang, seconds: int) -> bool:
    """Return whether the gang is within its minimum runtime, which is not 0."""
    started = gang.workload.started
    if started is None:
        running = [
            pod.started for part in gang.parts for pod in part.live.values() if pod.state is PodState.RUNNING
        ]
        started = min(running, default=None)
    return started is not None and board.now - started < seconds
