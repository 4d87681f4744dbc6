"""Find departments whose projects take turns directly with other departments.

Usually, departments take turns by usage, as do the projects within each department. This does not work for a
workload that is larger than its department's share, because it also needs GPUs from other departments. Such a
department is therefore divided: each of its projects takes turns with the other queues of the pool. Shares
and quotas do not change.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardGroup, BoardRole, Gang
from scheduler.engine.board.ledger import KINDS, NOT_DIVIDED, QueueAccount, main_resource
from scheduler.engine.fair_share.shares import shares_without_history
from scheduler.engine.fair_share.usage_history import (
    accounts_with_requests,
    history_seconds,
    update_usage_history,
)
from scheduler.engine.plan import Reason

GangsInBackoff = Mapping[QueueAccount, Sequence[Gang]]  # gangs in backoff by project


def update_turns(board: Board) -> None:
    """Decide for each department whether its projects take turns with other departments, instead of only with
    each other. Shares must be up to date.
    """
    if history_seconds(board.pool.fair_share):
        _divide_departments(board)
    update_usage_history(board.pool, board.ledger, board.nodes.capacity(), board.now)


def _divide_departments(board: Board) -> None:
    """Set `divided` on all departments. Placing or evicting workloads does not change it."""
    roots, capacity = board.ledger.roots, board.nodes.capacity()
    for root in roots:
        root.divided = NOT_DIVIDED
    in_backoff: GangsInBackoff | None = None
    for kind in KINDS:
        departments = [
            root
            for root in roots
            if root.pool_quota.weights[kind] > 0 and len(accounts_with_requests(root.children, kind)) > 1
        ]
        if not departments or sum([root.wanted[kind] for root in roots]) <= capacity[kind]:
            continue
        in_backoff = _gangs_in_backoff(board) if in_backoff is None else in_backoff
        shares = shares_without_history(board.pool, roots, kind, capacity[kind])
        for department in departments:
            deserved = max(department.quota[kind], shares[department])
            # If all workloads are larger than the share, usage falls while they are pending.
            if _has_small_and_large_workloads(board, in_backoff, department, kind, deserved):
                department.divided = (*department.divided[:kind], True, *department.divided[kind + 1 :])


def _gangs_in_backoff(board: Board) -> GangsInBackoff:
    result: dict[QueueAccount, list[Gang]] = defaultdict(list)
    for name, (reason, _) in board.ineligible.items():
        if reason is Reason.BACKOFF:
            result[board.gangs[name].account].append(board.gangs[name])
    return result


def _has_small_and_large_workloads(
    board: Board, in_backoff: GangsInBackoff, department: QueueAccount, kind: int, amount: int
) -> bool:
    """Return whether some, but not all, of the department's workloads request more than `amount`."""

    def minimum_requests(project: QueueAccount, with_running: bool) -> Iterator[int]:
        limit = min(account.limit[kind] for account in project.path)
        for group in board.groups_by_project.get(project, ()):
            yield _minimum_request(group.gangs[0], kind, limit)
        for gang in board.by_project.get(project, {}).values() if with_running else ():
            yield _minimum_request(gang, kind, limit)
        for gang in in_backoff.get(project, ()):
            yield _minimum_request(gang, kind, limit)

    return any(
        least > amount
        for project in department.children
        if project.requested[kind] > amount
        for least in minimum_requests(project, with_running=project.allocated[kind] > amount)
    ) and any(
        0 < least <= amount
        for project in department.children
        for least in minimum_requests(project, with_running=True)
    )


def _minimum_request(gang: Gang, kind: int, limit: int) -> int:
    """Return the amount of its main resource that the gang requests at its minimum size.

    Return 0 if the main resource is not `kind`, if the amount exceeds the limit, or if the gang can never be
    over quota.
    """
    if gang.non_preemptible:
        return 0
    least = (
        [sum(part.role.min * part.amounts[k] for part in gang.parts) for k in KINDS]
        if gang.simple
        else [_min_amount(gang.root, k) for k in KINDS]
    )
    return least[kind] if main_resource(least) == kind and least[kind] <= limit else 0


def _min_amount(node: BoardGroup | BoardRole, kind: int) -> int:
    if isinstance(node, BoardRole):
        return node.role.min * node.amounts[kind]
    return sum(sorted(_min_amount(child, kind) for child in node.children)[: node.need])
