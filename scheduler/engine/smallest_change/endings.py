"""Running workloads whose end could make room for the pending workload."""

from collections.abc import Callable, Iterator

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardRole, Gang, arrangements
from scheduler.engine.board.ledger import KINDS
from scheduler.engine.request_bounds import NON_PREEMPTIBLE_REASONS
from scheduler.engine.smallest_change.change import Change, ChangeKind
from scheduler.engine.smallest_change.pending_case import PendingCase
from scheduler.engine.smallest_change.proposals import Proposals, single_proposal

MAX_ENDINGS = 4  # maximum number of workloads tried

Amounts = tuple[int, int, int]


def propose_ending_project_workload(case: PendingCase) -> Iterator[Proposals]:
    """Propose ending another workload in the project, preferring the smallest and then the youngest."""
    return _proposed_endings(case, own=True)


def propose_ending_other_workload(case: PendingCase) -> Iterator[Proposals]:
    """Propose ending a workload in another project, preferring the same department."""
    return _proposed_endings(case, own=False)


def _proposed_endings(case: PendingCase, *, own: bool) -> Iterator[Proposals]:
    board, project = case.layout().boards[case.pool.name], case.workload.project
    shortfall = _bound_shortfall(case) if case.exceeded_bounds else _room_shortfall(board, case)
    department = board.ledger.accounts[project].path[-1]
    candidates = []
    for gang in board.gangs.values():
        if gang.is_running and (gang.workload.project == project) is own:
            left = shortfall(gang)
            if left is not None:
                elsewhere = gang.account.path[-1] is not department
                age = -(gang.workload.started or 0)
                candidates.append((left > 0, elsewhere, _allocated_amounts(gang), age, gang.name))
    for rank, (*_, name) in enumerate(sorted(candidates)[:MAX_ENDINGS]):
        yield single_proposal(Change(ChangeKind.WORKLOAD_ENDED, name), rank)


# Function that returns the amount still missing once a gang has ended, or None if its end does not help.
Shortfall = Callable[[Gang], int | None]


def _bound_shortfall(case: PendingCase) -> Shortfall:
    """Return a function that computes by how much limits and quotas would still be exceeded if a given gang
    ended.

    The function returns None if the gang's end would not help.
    """

    def shortfall(gang: Gang) -> int | None:
        queues, left = [account.name for account in gang.account.path], 0
        for bound in case.exceeded_bounds:
            freed = _allocated_amounts(gang)[bound.kind] if bound.queue.name in queues else 0
            missing = max(0, bound.missing - freed)
            if not freed or (
                bound.reason in NON_PREEMPTIBLE_REASONS and (missing or not gang.non_preemptible)
            ):
                return None
            left += missing
        return left

    return shortfall


def _room_shortfall(board: Board, case: PendingCase) -> Shortfall:
    """Return a function that returns 0 if the pending gang may fit after a given gang has ended.

    Otherwise, the function returns None.
    """
    pending = board.gangs[case.workload.name]
    options = [[(need.part, need.count) for need in option] for option in arrangements(pending)]
    parts = {part for option in options for part, _ in option}
    every_node = range(len(board.nodes.nodes))
    before = {part: [_replicas_that_fit(board, i, part) for i in every_node] for part in parts}
    totals = {part: sum(counts) for part, counts in before.items()}

    def shortfall(gang: Gang) -> int | None:
        start = board.log_position()
        for role in gang.parts:
            for pod in tuple(role.live.values()):
                board.remove_pod(gang, role, pod)
        nodes = {move.node for move in board.moves_since(start)}
        fitting = {
            part: totals[part] + sum(_replicas_that_fit(board, i, part) - before[part][i] for i in nodes)
            for part in parts
        }
        board.rewind(start)
        fits = any(all(fitting[part] >= count for part, count in option) for option in options)
        return 0 if fits else None

    return shortfall


def _allocated_amounts(gang: Gang) -> Amounts:
    gpu, cpu, memory = (sum(part.amounts[kind] * len(part.live) for part in gang.parts) for kind in KINDS)
    return gpu, cpu, memory


def _replicas_that_fit(board: Board, i: int, part: BoardRole) -> int:
    nodes, request = board.nodes, part.request
    if not nodes.ready[i] or (part.mask is not None and not part.mask[i]):
        return 0
    counts: list[int] = [nodes.pods[i]]
    if request.cpu:
        counts.append(nodes.cpu_unrequested[i] // request.cpu)
    if request.memory_mib:
        counts.append(nodes.memory_unrequested[i] // request.memory_mib)
    if request.devices:
        milli = nodes.device_share_milli(i, request)
        counts.append(sum(max(0, free) // milli for free in nodes.devices[i]) // request.devices)
    if part.role.spread_per_node is not None:
        counts.append(part.role.spread_per_node)
    return max(0, min(counts))
