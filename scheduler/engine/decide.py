"""Make a cycle's decisions: run actions on boards and return a plan."""

from collections.abc import Iterable, Sequence

from scheduler.engine.actions import ACTIONS, Action
from scheduler.engine.board.board import Board
from scheduler.engine.explain.report import build_plan
from scheduler.engine.layout.carry_over import prepare_layout
from scheduler.engine.layout.layout import Layout
from scheduler.engine.layout.other_pools import refresh_other_pools
from scheduler.engine.layout.quota_groups import QuotaGroups
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan

MAX_ROUNDS = 8  # maximum number of further rounds; most cycles need only one


def decide(snapshot: Snapshot, actions: Sequence[str] | None = None) -> Plan:
    """Return the plan for a snapshot.

    Run only the named `actions`, or all actions if None. They always run in the engine's order.
    """
    return decide_with_layout(snapshot, None, actions)[0]


def decide_with_layout(
    snapshot: Snapshot, previous_layout: Layout | None, actions: Sequence[str] | None = None
) -> tuple[Plan, Layout]:
    """Return the plan and the layout (the boards).

    Pass the layout as `previous_layout` in the next cycle, so that only changed parts are rebuilt.
    """
    layout = prepare_layout(snapshot, previous_layout)
    boards, choices = layout.quota_groups.boards_in_processing_order(), range(layout.max_pool_choices)
    chosen = [action for name, action in ACTIONS.items() if actions is None or name in actions]
    _run_actions(boards, chosen, choices, layout.quota_groups)
    for _ in range(MAX_ROUNDS):
        # Several rounds are needed, because an eviction may free more than the preemptor uses.
        # A workload that is placed in one pool uses shared quota and leaves the queues of other pools.
        # Rounds are repeated until nothing is left for the next cycle.
        refreshed = {
            board.pool.name for board in boards if layout.max_pool_choices > 1 and refresh_other_pools(board)
        }
        for pool in layout.quota_groups.changed_pools():
            refreshed.add(pool)
            for group in layout.boards[pool].pending_groups.values():
                group.reasons = {}  # the next round records the reasons again
        changed = [board for board in boards if board.cycle.evicting_trials or board.pool.name in refreshed]
        before = [board.cycle.accepted_trials for board in changed]
        for board in changed:
            board.cycle.scaled_down.clear()  # scaled-down gangs may scale up again on free capacity
        _run_actions(changed, chosen, choices, layout.quota_groups)
        if before == [board.cycle.accepted_trials for board in changed]:
            break
    layout.quota_groups.changed_pools()
    return build_plan(list(layout.boards.values()), layout.notes), layout


def _run_actions(
    boards: Sequence[Board], chosen: Iterable[Action], choices: range, quota_groups: QuotaGroups
) -> None:
    for action in chosen:
        for step in action:
            for choice in choices:  # try all first-choice pools before any second choice
                for board in boards:
                    quota_groups.refresh(board)
                    step(board, choice)
