"""Decide: try actions on boards and return a plan."""

from collections.abc import Iterable, Sequence

from scheduler.engine.actions import ACTIONS, Action
from scheduler.engine.board.board import Board
from scheduler.engine.explain.report import report
from scheduler.engine.layout.carry_over import layout_for
from scheduler.engine.layout.layout import Layout
from scheduler.engine.layout.other_pools import refresh_other_pools
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan

ROUNDS_MOST = 8  # upper bound: the second round usually finds nothing more to do


def decide(snapshot: Snapshot, actions: Sequence[str] | None = None) -> Plan:
    """Return the plan for a snapshot. `actions` selects actions by name.

    The selected actions always run in the same order.
    """
    return decide_again(snapshot, None, actions)[0]


def decide_again(
    snapshot: Snapshot, carried: Layout | None, actions: Sequence[str] | None = None
) -> tuple[Plan, Layout]:
    """Return the plan and the layout.

    The next cycle passes this layout as `carried`, so that only the changed parts are laid out again.
    """
    layout = layout_for(snapshot, carried)
    boards, choices = list(layout.boards.values()), range(layout.most_choices)
    chosen = [action for name, action in ACTIONS.items() if actions is None or name in actions]
    _act(boards, chosen, choices)
    for _ in range(ROUNDS_MOST):
        # An eviction may free more than the preemptor used, and a workload that was placed in one pool no
        # longer requests anything in the others. Repeat, so that the next cycle has nothing left to do.
        refreshed = {
            board.pool.name for board in boards if layout.most_choices > 1 and refresh_other_pools(board)
        }
        changed = [board for board in boards if board.cycle.evicting_trials or board.pool.name in refreshed]
        before = [board.cycle.accepted_trials for board in changed]
        for board in changed:
            board.cycle.scaled_down.clear()  # a scaled-down gang may use resources that the preemptor left
        _act(changed, chosen, choices)
        if before == [board.cycle.accepted_trials for board in changed]:
            break
    return report(boards, layout.notes), layout


def _act(boards: Sequence[Board], chosen: Iterable[Action], choices: range) -> None:
    for action in chosen:
        for step in action:
            for choice in choices:  # the first pool of every workload before the second pool of any
                for board in boards:
                    step(board, choice)
