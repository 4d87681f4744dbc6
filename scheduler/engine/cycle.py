"""Here we decide: look once, try moves on boards, answer with a plan."""

from collections.abc import Sequence

from scheduler.engine.actions import ACTIONS, GENTLE
from scheduler.engine.board import Board
from scheduler.engine.layout import lay_out
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from scheduler.engine.report import report


def decide(snapshot: Snapshot, actions: Sequence[str] | None = None) -> Plan:
    """Actions run in their own order, the gentlest first, whatever order they are named in."""
    boards, notes = lay_out(snapshot)
    choices = range(max((len(workload.pools) for workload in snapshot.workloads), default=1))
    for name, action in ACTIONS.items():
        if actions is None or name in actions:
            for choice in choices:  # everybody's first pool before anybody's second
                for board in boards:
                    action(board, choice)
    _give_out_the_rest(boards, choices, actions)
    return report(boards, notes)


def _give_out_the_rest(boards: Sequence[Board], choices: range, actions: Sequence[str] | None) -> None:
    """Where somebody gave way, more may be free than the newcomer took: the gentle actions once more."""
    for name in GENTLE:
        if actions is None or name in actions:
            for choice in choices:
                for board in boards:
                    if board.upheavals:
                        ACTIONS[name](board, choice)
