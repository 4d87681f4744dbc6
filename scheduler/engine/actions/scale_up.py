"""Scale up elastic gangs one replica at a time, starting with the gang furthest from its maximum."""

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import exceeded_bound, is_in_backoff
from scheduler.engine.board.gang import (
    Arrangement,
    BoardGroup,
    BoardRole,
    Gang,
    ReplicaRequest,
    arrangements_for,
    current_max,
    enclosing_scopes,
    has_live_pods,
    total_request,
)
from scheduler.engine.board.ledger import fits_within
from scheduler.engine.placement.find_room import may_use_held_nodes, place_arrangement
from scheduler.engine.placement.slots import UsableCapacity
from scheduler.engine.plan import Kind

MAX_SCALE_UP_STEPS = 500  # maximum number of scale-up steps per workload and cycle


class ScaleUpStep(NamedTuple):
    """Next scale-up step of a gang.

    Steps are sorted by fulfilment (0 at the minimum, 1 at the maximum), size, submission time and name.
    """

    fulfilment: float
    amounts: tuple[int, int, int]
    submitted: int
    name: str
    role: str
    gang: Gang
    arrangement: Arrangement

    @property
    def sort_key(self) -> tuple[float, tuple[int, int, int], int, str, str]:
        return self.fulfilment, self.amounts, self.submitted, self.name, self.role


def scale_up(board: Board, choice: int) -> None:
    """Scale up gangs, first up to their queues' deserved amounts, then as far as free capacity allows."""
    steps_taken = Counter[str]()
    for deserved_only in (True, False):
        queue = ScaleUpQueue(elastic_gangs(board, choice))
        failed_kinds: set[object] = set()
        while (step := queue.next_step()) is not None:
            part = step.arrangement[0].part
            kind = part.request, part.mask, may_use_held_nodes(board, step.gang)
            if (
                kind in failed_kinds
                or steps_taken[step.name] >= MAX_SCALE_UP_STEPS
                or not is_step_allowed(step, deserved_only)
            ):
                continue
            if _try_step(board, step):
                steps_taken[step.name] += 1
                queue.refresh_steps(step.gang)
            elif (
                len(step.arrangement) == 1
                and not step.arrangement[0].scopes
                and part.replicas_by_node is None
            ):
                failed_kinds.add(kind)


class ScaleUpQueue:
    """Priority queue of possible scale-up steps.

    After each step, the gang's remaining steps are recomputed.
    """

    def __init__(self, gangs: Sequence[Gang]) -> None:
        self._now = {gang.name: {step.role: step for step in scale_up_steps(gang)} for gang in gangs}
        self._heap = [step.sort_key for steps in self._now.values() for step in steps.values()]
        heapify(self._heap)

    def next_step(self) -> ScaleUpStep | None:
        while self._heap:
            sort_key = heappop(self._heap)
            step = self._now[sort_key[3]].get(sort_key[4])
            if step is not None and step.sort_key == sort_key:
                return step
        return None

    def refresh_steps(self, gang: Gang) -> None:
        before = self._now[gang.name]
        self._now[gang.name] = now = {step.role: step for step in scale_up_steps(gang)}
        for role, step in now.items():
            if role not in before or before[role].sort_key != step.sort_key:
                heappush(self._heap, step.sort_key)


def elastic_gangs(board: Board, choice: int) -> list[Gang]:
    """Return the elastic gangs that may scale up."""
    return [
        gang
        for gang in board.elastic_gangs
        if gang.choice == choice
        and gang.has_pods
        and gang.meets_minimum
        and not is_in_backoff(board, gang.workload)
        and gang.name not in board.cycle.reserved_only
        and gang.name not in board.cycle.evicted
        and gang.name not in board.cycle.scaled_down
    ]


def is_step_allowed(step: ScaleUpStep, deserved_only: bool) -> bool:
    requested = total_request(step.arrangement)
    if exceeded_bound(step.gang, requested, step.arrangement) is not None:
        return False
    return not deserved_only or all(
        fits_within(account.allocated, account.deserved, requested) for account in step.gang.account.path
    )


def _try_step(board: Board, step: ScaleUpStep) -> bool:
    with board.trial(step.gang, default_reason=None) as trial:
        for capacity in (UsableCapacity.NOW, UsableCapacity.LEAVING):
            if capacity is UsableCapacity.LEAVING and not board.nodes.leaving:
                continue
            if place_arrangement(board, step.gang, step.arrangement, capacity):
                trial.accept(Kind.GROW)
                break
    return trial.kind is not None


def scale_up_steps(gang: Gang, replicas: int = 1) -> Iterator[ScaleUpStep]:
    """Yield the possible scale-up steps.

    A step adds `replicas` replicas of one role, or one optional group.
    """
    workload = gang.workload
    for part in gang.parts:
        arrangement = _request_more_replicas(gang, part, replicas)
        if arrangement:
            yield ScaleUpStep(
                part.fulfilment(),
                part.amounts,
                workload.submitted,
                gang.name,
                part.role.name,
                gang,
                arrangement,
            )
    if not gang.simple:
        for number, (section, child) in enumerate(_missing_optional_children(gang.root)):
            arrangement = next(arrangements_for(gang, child), ())
            if arrangement:
                extra = sum(c.meets_minimum for c in section.children) - section.need
                score = max(0.0, extra / (len(section.children) - section.need))
                yield ScaleUpStep(
                    score,
                    total_request(arrangement),
                    workload.submitted,
                    gang.name,
                    f"#{number}",
                    gang,
                    arrangement,
                )


def _request_more_replicas(gang: Gang, part: BoardRole, replicas: int) -> Arrangement:
    """Return an arrangement with more replicas of a role and of the roles that scale with it.

    It is empty if the role cannot be scaled up.
    """
    role = part.role
    if not part.meets_minimum or not (part.live or role.min == 0) or not has_live_pods(gang.root):
        return ()
    if role.scale_with is not None:
        behind = current_max(gang, part) - part.replica_count
        return (ReplicaRequest(part, behind, enclosing_scopes(gang, part)),) if behind > 0 else ()
    if (
        part.replica_count + replicas > role.max
        or len(list(islice(part.free_indices(), replicas))) < replicas
    ):
        return ()
    needs = [ReplicaRequest(part, replicas, enclosing_scopes(gang, part))]
    for follower in gang.parts:
        if follower.role.scale_with is not None and follower.role.scale_with.role == role.name:
            more = current_max(gang, follower, replicas) - follower.replica_count
            if more > 0:
                needs.append(ReplicaRequest(follower, more, enclosing_scopes(gang, follower)))
    return tuple(needs)


def _missing_optional_children(section: BoardGroup) -> Iterator[tuple[BoardGroup, "BoardGroup | BoardRole"]]:
    """Yield (group, child) for each optional child that is missing from a running group."""
    if not section.meets_minimum:
        return
    for child in section.children:
        if not child.meets_minimum and len(section.children) > section.need:
            yield section, child
        elif isinstance(child, BoardGroup):
            yield from _missing_optional_children(child)
