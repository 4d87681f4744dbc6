"""Build the plan from the boards after all actions have run."""

from collections.abc import Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.ledger import QueueAccount, to_amounts
from scheduler.engine.explain.demand import GroupSums, demand_within_bounds, unmet_demand
from scheduler.engine.explain.new_nodes import addable_node_count
from scheduler.engine.explain.rejections import Rejections, collect_rejections
from scheduler.engine.plan import Demand, Plan, QueueReport, Reason


def build_plan(boards: Sequence[Board], notes: Sequence[str]) -> Plan:
    demand = _pool_demands(boards)
    return Plan(
        bundles=tuple(bundle for board in boards for bundle in board.cycle.bundles),
        rejections=Rejections([collect_rejections(board) for board in boards]),
        queues=tuple(
            _cached_queue_report(board, account)
            for board in boards
            for account in board.ledger.accounts.values()
        ),
        demand=demand,
        trials=sum(board.cycle.trials for board in boards),
        notes=tuple(sorted(notes)),
    )


def _pool_demands(boards: Sequence[Board]) -> tuple[Demand, ...]:
    """Return each pool's demand. A pending workload counts towards only one pool."""
    preferred_boards = _preferred_boards(boards) if len(boards) > 1 else {}
    demands: list[Demand] = []
    in_groups = GroupSums()
    for board in boards:
        counted_elsewhere = {name for name, home in preferred_boards.items() if home is not board}
        demand, served = unmet_demand(board, demand_within_bounds(board, counted_elsewhere, in_groups))
        for gang in served if demand.nodes_wanted else ():  # no nodes are added if booting nodes suffice
            board.add_gang_reason(gang, Reason.WAITING_FOR_SCALE_UP, {"nodes": demand.nodes_wanted})
        demands.append(demand)
    return tuple(demands)


def _preferred_boards(boards: Sequence[Board]) -> dict[str, Board]:
    """Return the board to which each pending workload's demand is assigned.

    Pools that can add nodes come first.
    """
    result: dict[str, list[tuple[bool, int, str, Board]]] = {}
    for board in boards:
        cannot_add_nodes = addable_node_count(board) == 0
        for group_demand in demand_within_bounds(board, ()):
            for gang in group_demand:
                result.setdefault(gang.name, []).append(
                    (cannot_add_nodes, gang.choice, board.pool.name, board)
                )
    return {name: min(pools, key=lambda pool: pool[:3])[3] for name, pools in result.items()}


def _cached_queue_report(board: Board, account: QueueAccount) -> QueueReport:
    """Return the queue's report, cached until the values in it change."""
    values = account.pool_quota, *account.allocated, *account.requested, *account.share
    if account.cached_report is None or account.cached_report[0] != values:
        account.cached_report = values, _queue_report(board, account)
    return account.cached_report[1]


def _queue_report(board: Board, account: QueueAccount) -> QueueReport:
    return QueueReport(
        queue=account.name,
        pool=board.pool.name,
        quota=account.pool_quota.quota,
        limit=account.pool_quota.limit,
        share=to_amounts(account.share),
        allocated=to_amounts(account.allocated),
        requested=to_amounts(account.requested),
        usage=_normalized_usage(account),
    )


def _normalized_usage(account: QueueAccount) -> tuple[float, float, float]:
    usage = account.pool_quota.usage
    return usage.fraction_of_parent(0), usage.fraction_of_parent(1), usage.fraction_of_parent(2)
