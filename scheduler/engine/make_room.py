"""Here we make others give way for one newcomer: bound, propose, simulate, judge."""

from collections.abc import Callable, Iterable, Iterator

from berth.core.amounts import RESOURCES
from scheduler.engine.audit import evictions
from scheduler.engine.board import Board, Numbers, Trial
from scheduler.engine.bounds import reach
from scheduler.engine.eligible import over_bounds, over_firm_quota, over_share, pending
from scheduler.engine.gang import Gang, Way, amounts_of, ways
from scheduler.engine.laws import Law
from scheduler.engine.ledger import Account
from scheduler.engine.order import Line
from scheduler.engine.plan import Reason
from scheduler.engine.proposals import by_nodes, by_prefix
from scheduler.engine.reasons import NEVER
from scheduler.engine.resettle import Outcome, resettle
from scheduler.engine.shapes import shape
from scheduler.engine.taking import Taker

MOST_PROPOSALS = 24  # for one newcomer by one law; counted, so that every machine gives up at the same place

MakeLaw = Callable[[Board, Gang, tuple[int, int, int]], Law]


def serve(board: Board, choice: int, make_law: MakeLaw) -> None:
    """Try the law for everybody who still waits, in order. Those who ask for the same share one answer."""
    refused: dict[object, tuple[Reason, Numbers]] = {}
    line = Line(pending(board, choice))
    for gang, asked, key in line:
        board.stood_in_line(gang, key)
        if NEVER & board.refusals.get(gang.name, {}).keys():
            continue
        kind = (gang.account, gang.workload.priority, gang.firm, shape(gang), _delay_left(board, gang) > 0)
        with board.trial(gang, otherwise=Reason.NOTHING_TO_TAKE) as trial:
            if kind in refused:
                trial.refuse(*refused[kind])
                continue
            law = make_law(board, gang, asked)
            obstacle = _obstacle(board, law) or _try_ways(trial, law, make_law, ways(gang))
            if obstacle is not None:
                refused[kind] = obstacle
                trial.refuse(*obstacle)
                if law.silent and obstacle[0] is Reason.NOTHING_TO_TAKE:
                    trial.pass_over()
        if trial.kind is not None:
            refused.clear()
            line.reorder()


def serve_one(board: Board, gang: Gang, way: Way, make_law: MakeLaw) -> bool:
    """Try the law for one step of growth. Nobody waits for growth, so nothing is refused."""
    law = make_law(board, gang, amounts_of(way))
    with board.trial(gang, otherwise=Reason.NOTHING_TO_TAKE) as trial:
        if _obstacle(board, law) is not None or _try_ways(trial, law, make_law, (way,)) is not None:
            trial.pass_over()
    return trial.kind is not None


def _delay_left(board: Board, gang: Gang) -> int:
    """Its own delay always counts, the pool's only while the pool could still grow."""
    delay = gang.workload.preemption_delay
    if delay is None:
        delay = board.pool.preemption_delay if board.can_grow else 0
    return max(0, gang.workload.submitted + delay - board.now) if delay > 0 else 0


def _obstacle(board: Board, law: Law) -> tuple[Reason, Numbers] | None:
    """What no taking could cure."""
    gang = law.gang
    if not law.may_evict():
        return over_share(gang, law.asked)
    firm = over_firm_quota(gang, law.asked)
    if firm is not None:
        return firm
    bound = over_bounds(gang, law.asked)
    if bound is not None and bound[0] not in law.relieves:
        return bound
    wait = _delay_left(board, gang)
    if wait:
        return Reason.IN_PREEMPTION_DELAY, {"seconds": wait}
    return None


def _try_ways(
    trial: Trial, law: Law, make_law: MakeLaw, choices: Iterable[Way]
) -> tuple[Reason, Numbers] | None:
    board, gang = trial.board, trial.gang
    found: tuple[Reason, Numbers] | None = None
    for way in choices:
        asked = amounts_of(way)
        law = law if asked == law.asked else make_law(board, gang, asked)
        short = reach(Taker(board, law))
        if short is not None:
            found = found or short
            continue
        before, over_bounds_before = _held(board), over_bounds(gang, asked) is not None
        budget = _Budget(min(MOST_PROPOSALS, law.most_trials))
        for taker in _proposals(board, law, way, budget):
            outcome = resettle(taker, trial.start, law.most_moves)
            if outcome is not None and not outcome.lost and not outcome.moved:
                trial.pass_over()  # it fits as it is: for allocate to do
                board.rewind(trial.start)
                return None
            if outcome is not None:
                trial.waits = bool(outcome.lost) and over_bounds_before
                trial.keep(law.kind, _message(law, outcome), evictions(taker, outcome, before))
                return None
        board.rewind(trial.start)
        found = found or _no_arrangement(law, budget)
    return found


def _no_arrangement(law: Law, budget: "_Budget") -> tuple[Reason, Numbers]:
    """In sum it would have done, but not in any arrangement that was tried."""
    if budget.left <= 0:
        return Reason.OUT_OF_TRIALS, {"trials": budget.given}
    kind = law.kinds[0] if law.kinds else 0
    numbers: Numbers = {
        "resource": RESOURCES[kind],
        "asked": law.asked[kind],
        "takeable": None,
        "missing": None,
    }
    return Reason.NOTHING_TO_TAKE, numbers


class _Budget:
    """Trials are counted, not timed."""

    def __init__(self, given: int) -> None:
        self.given = self.left = given

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0


def _held(board: Board) -> dict[Account, tuple[int, ...]]:
    return {account: tuple(account.allocated) for account in board.ledger.accounts.values()}


def _proposals(board: Board, law: Law, way: Way, budget: _Budget) -> Iterator[Taker]:
    """Each stands on the board when it is handed out; the board is rewound before the next."""
    start, banned = board.mark(), set[int]()
    if not any(want.scopes for want in way):
        while budget.spend():
            board.trials += 1
            taker = Taker(board, law)
            if not by_nodes(taker, way, banned):
                board.rewind(start)
                break
            yield taker
            cleared = {board.nodes.index[pod.node] for lump in taker.taken for _, pod in lump.pods}
            board.rewind(start)
            if not cleared - banned:
                break
            banned.add(min(cleared - banned))
    taker = Taker(board, law)
    for _ in by_prefix(taker, way):
        if not budget.spend():
            break
        board.trials += 1
        yield taker
    board.rewind(start)


def _message(law: Law, outcome: Outcome) -> str:
    stopped = len({lump.gang.name for lump in outcome.lost if lump.whole})
    shrunk = sum(len(lump.pods) for lump in outcome.lost if not lump.whole)
    return (
        f"{stopped} stopped, {shrunk} growth replicas taken, {len(outcome.moved)} pods moved, by {law.kind}"
    )
