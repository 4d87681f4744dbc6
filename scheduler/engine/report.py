"""Here we turn the boards, when all actions are done, into the plan."""

from collections.abc import Sequence
from datetime import UTC, datetime

from berth.core.amounts import RESOURCES
from scheduler.engine.board import Board
from scheduler.engine.demand import unmet
from scheduler.engine.eligible import over_share, still_pending
from scheduler.engine.gang import ways
from scheduler.engine.ledger import KINDS, Account, amounts
from scheduler.engine.plan import Demand, Plan, QueueReport, Reason, Refusal, ShareStep
from scheduler.engine.reasons import Speaker, dominance
from scheduler.engine.shortage import why_no_room

_BECAUSE = {
    "quota": "asked for within its quota",
    "over_quota": "its part by weight of what quotas leave over",
    "remainder": "left-over units, by largest remainder",
}


def report(boards: Sequence[Board], notes: Sequence[str]) -> Plan:
    demand = _demand(boards)
    return Plan(
        bundles=tuple(bundle for board in boards for bundle in board.bundles),
        refusals=_refusals(boards),
        queues=tuple(
            _queue(board, account) for board in boards for account in board.ledger.accounts.values()
        ),
        demand=demand,
        trials=sum(board.trials for board in boards),
        notes=tuple(sorted(notes)),
    )


def _demand(boards: Sequence[Board]) -> tuple[Demand, ...]:
    """Pool by pool; who waits in several pools is counted where it would rather be."""
    counted: set[str] = set()
    answers = {}
    for board in boards:
        demand, served = unmet(board, counted)
        counted.update(shape.workload for shape in demand.shapes)
        for name in served:
            board.refuse(board.gangs[name], Reason.WAITING_FOR_SCALE_UP, {"nodes": demand.nodes_wanted})
        answers[board.pool.name] = demand
    return tuple(answers.values())


def _refusals(boards: Sequence[Board]) -> tuple[Refusal, ...]:
    refusals = [refusal for board in boards for refusal in _of_pool(board)]
    best: dict[str, Refusal] = {}
    for refusal in sorted(refusals, key=lambda r: -dominance(r.blockers[0].reason)):
        best.setdefault(refusal.workload, refusal)  # of several pools, the one with the least against it
    return tuple(refusal for refusal in refusals if best[refusal.workload] is refusal)


def _of_pool(board: Board) -> list[Refusal]:
    for gang in board.waiting:
        if gang.name not in board.refusals and still_pending(board, gang):
            board.refuse(gang, *why_no_room(board, gang))
    lined = [name for name in board.line if name in board.refusals]
    names = lined + sorted(name for name in board.refusals if name not in board.line)
    found, speaker = [], Speaker()
    for position, name in enumerate((name for name in names if name not in board.served), 1):
        gang, reasons = board.gangs[name], dict(board.refusals[name])
        if gang.stands and not gang.is_whole:
            missing = sum(want.count for want in next(ways(gang)))
            reasons.setdefault(Reason.WAITING_FOR_GANG, {"missing": missing})
        beyond = over_share(gang, gang.asked) if name in board.line else None
        if beyond is not None:
            reasons.setdefault(*beyond)
        key = tuple(line for turn in board.line.get(name, ()) for line in turn.sentences())
        key += (f"priority {gang.workload.priority}", f"submitted {_utc(gang.workload.submitted)}", name)
        kept = board.kept
        start = kept.until if kept is not None and kept.name == name else None
        found.append(Refusal(name, speaker.blockers(reasons), position, key, start, board.pool.name))
    return found


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _queue(board: Board, account: Account) -> QueueReport:
    return QueueReport(
        queue=account.name,
        pool=board.pool.name,
        quota=account.entitlement.quota,
        limit=account.entitlement.limit,
        share=amounts(account.share),
        allocated=amounts(account.allocated),
        requested=amounts(account.requested),
        usage=_usage(account),
        steps=tuple(
            ShareStep(phase, RESOURCES[kind], amount, _BECAUSE[phase])
            for kind in KINDS
            for phase, amount in zip(_BECAUSE, account.parts[kind], strict=True)
            if amount
        ),
    )


def _usage(account: Account) -> tuple[float, float, float]:
    usage = account.entitlement.usage
    return usage.normalised(0), usage.normalised(1), usage.normalised(2)
