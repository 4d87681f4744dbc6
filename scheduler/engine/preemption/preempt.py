"""Evict victims for one preemptor: bound, propose, simulate, judge."""

from collections.abc import Iterable, Iterator

from scheduler.engine.board.board import Board, Trial
from scheduler.engine.board.eligible import over_bounds, pending, speaker
from scheduler.engine.board.gang import Gang, Peers, Way, amounts_of, ways
from scheduler.engine.board.ledger import Account
from scheduler.engine.board.order import Line
from scheduler.engine.explain.reasons import NEVER
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Kind, Numbers, Reason
from scheduler.engine.preemption.audit import evictions
from scheduler.engine.preemption.bounds import in_sum, reach
from scheduler.engine.preemption.obstacles import no_use, obstacle
from scheduler.engine.preemption.outcome import Outcome, resettle
from scheduler.engine.preemption.policy import Law
from scheduler.engine.preemption.proposals import (
    by_domains,
    by_nodes,
    by_prefix,
    cheaper_alone,
    one_may_do,
    relieve,
)
from scheduler.engine.preemption.selection import Taker
from scheduler.engine.preemption.victim_costs import Known
from scheduler.engine.preemption.victims import Lump

MOST_PROPOSALS = 24  # for one newcomer by one law; counted, so that every machine gives up at the same place


def serve(board: Board, choice: int, make_law: type[Law]) -> None:
    """Try the law for everybody who still waits, in order.

    Of those in a project who ask for the same, the first speaks for all; when it is served, the order is
    looked at again and the next one speaks. Nobody is served twice: who lost its new place to the next one
    waits for another cycle, so that two can never take it from each other in turn.
    """
    done: set[str] = set()
    hopeful = {peers for peers in pending(board, choice) if not NEVER & peers.found.keys()}
    served = not _all_refused(board, hopeful, make_law)
    while served:
        served = False
        line = Line(board, hopeful)
        for peers, gang in line:
            line.leave(peers)
            if gang.name in done:
                hopeful.remove(peers)
                continue
            done.add(gang.name)
            refused = _attempt(board, gang, make_law)
            if refused is not None and refused[1]:
                board.refuse(gang, *refused)
            if refused is not None or speaker(board, peers) is gang:
                hopeful.remove(peers)
            if refused is None:
                served = True
                break


def _all_refused(board: Board, hopeful: Iterable[Peers], make_law: type[Law]) -> bool:
    """Whether nobody can be served, told without a trial; then everybody has been told why.

    As long as nobody is served the board is the same for all, and their order does not matter.
    """
    obstacles = []
    for peers in hopeful:
        gang = peers.gangs[peers.at]  # nothing has happened since they were found pending
        obstacle = no_use(board, gang, make_law)
        if obstacle is None:
            return False
        obstacles.append((gang, obstacle))
    for gang, (reason, numbers) in obstacles:
        board.trials += 1
        if make_law.silent and reason is Reason.NO_RECLAIMABLE_RESOURCES:
            continue
        if numbers:
            board.refuse(gang, reason, numbers)
    return True


def _attempt(board: Board, gang: Gang, make_law: type[Law]) -> tuple[Reason, Numbers] | None:
    """None: it was served, or nobody has to make room for it."""
    with board.trial(gang, otherwise=Reason.NO_RECLAIMABLE_RESOURCES) as trial:
        law = make_law(board, gang, gang.asked)
        found = _try_ways(trial, law, make_law, ways(gang))
        trial.pass_over()  # the refusal is written down for all who are alike
    if found is not None and law.silent and found[0] is Reason.NO_RECLAIMABLE_RESOURCES:
        return found[0], {}
    return found


def serve_one(board: Board, gang: Gang, way: Way, make_law: type[Law]) -> bool:
    """Try the law for one step of growth. Nobody waits for growth, so nothing is refused."""
    law = make_law(board, gang, amounts_of(way))
    with board.trial(gang, otherwise=Reason.NO_RECLAIMABLE_RESOURCES) as trial:
        if _try_ways(trial, law, make_law, (way,)) is not None:
            trial.pass_over()
    return trial.kind is not None


def _try_ways(
    trial: Trial, law: Law, make_law: type[Law], choices: Iterable[Way]
) -> tuple[Reason, Numbers] | None:
    board, gang = trial.board, trial.gang
    found: tuple[Reason, Numbers] | None = None
    for way in choices:
        asked = amounts_of(way)
        law = law if asked == law.asked else make_law(board, gang, asked)
        short = obstacle(board, law) or reach(Taker(board, law))
        if short is not None:
            found = found or short
            continue
        before, over_bounds_before = _held(board), over_bounds(gang, asked) is not None
        budget = _Budget(min(MOST_PROPOSALS, law.most_trials))
        for taker in _all_proposals(board, law, way, budget):
            outcome = resettle(taker, trial.start, way, law.most_moves)
            if outcome is not None and not outcome.lost and not outcome.moved:
                trial.pass_over()  # it fits as it is: for allocate to do
                board.rewind(trial.start)
                return None
            if outcome is not None:
                trial.waits = over_bounds_before and outcome.stops_somebody(board)
                written = evictions(taker, outcome, before)
                trial.keep(law.kind if written else Kind.START, _message(law, outcome), written)
                return None
        board.rewind(trial.start)
        found = found or _no_arrangement(board, law, budget)
    return found


def _no_arrangement(board: Board, law: Law, budget: "_Budget") -> tuple[Reason, Numbers]:
    """In sum it would have done, but not in any arrangement that was tried."""
    reasons = board.reasons(law.gang)
    short = reasons.get(Reason.FRAGMENTED) or reasons.get(Reason.WAITING_FOR_CAPACITY) or {}
    numbers = in_sum(Taker(board, law), short.get("resource"))
    if budget.left <= 0:
        return Reason.PLACEMENT_ATTEMPTS_EXHAUSTED, {"attempts": budget.given, **numbers}
    return Reason.NO_RECLAIMABLE_RESOURCES, numbers


class _Budget:
    """Trials are counted, not timed."""

    def __init__(self, given: int) -> None:
        self.given = self.left = given

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def renewed(self) -> "_Budget":
        self.left = self.given
        return self


def _held(board: Board) -> dict[Account, tuple[int, ...]]:
    return {account: tuple(account.allocated) for account in board.ledger.accounts.values()}


def _all_proposals(board: Board, law: Law, way: Way, budget: _Budget) -> Iterator[Taker]:
    yield from _proposals(board, law, way, budget)
    if law.takes_more_inside():
        yield from _proposals(board, law, way, budget.renewed())
    if law.spares_more():
        yield from _proposals(board, law, way, budget.renewed())


def _proposals(board: Board, law: Law, way: Way, budget: _Budget) -> Iterator[Taker]:
    """Each stands on the board when it is handed out; the board is rewound before the next."""
    start, banned, known, free = board.mark(), set[int](), Known(), board.nodes.free()
    if not any(want.scopes for want in way):
        one_may = one_may_do(Taker(board, law), way, free)
        replicas = sum(want.count for want in way)
        while budget.spend() and board.efforts.may_try(law.gang, replicas):
            board.trials += 1
            taker = Taker(board, law)
            if not by_nodes(taker, way, banned, known):
                board.rewind(start)
                break
            if one_may and not banned and sum(lump.whole for lump in taker.taken) > 1:
                stopped = list(taker.taken)
                board.rewind(start)
                yield from _alone(board, law, way, cheaper_alone(Taker(board, law), way, free, stopped))
                taker = Taker(board, law)
                by_nodes(taker, way, banned, known)
            yield taker
            cleared = {board.nodes.index[pod.node] for lump in taker.taken for _, pod in lump.pods}
            board.rewind(start)
            if not cleared - banned:
                break
            banned.add(min(cleared - banned))
    else:
        for domain, lumps in by_domains(board, law, way):
            if not budget.spend():
                break
            board.trials += 1
            taker = Taker(board, law)
            taken = all(taker.take(lump) for lump in lumps)
            if taken and find_room(board, law.gang, way, Horizon.LEAVING, domain):
                yield taker
            board.rewind(start)
    taker = Taker(board, law)
    for _ in by_prefix(taker, way):
        if not budget.spend():
            break
        board.trials += 1
        yield taker
    board.rewind(start)


def _alone(board: Board, law: Law, way: Way, lumps: Iterable[Lump]) -> Iterator[Taker]:
    start = board.mark()
    for lump in lumps:
        board.trials += 1
        taker = Taker(board, law)
        if taker.take(lump) and relieve(taker, way) and find_room(board, law.gang, way, Horizon.LEAVING):
            yield taker
        board.rewind(start)


def _message(law: Law, outcome: Outcome) -> str:
    stopped = len({lump.gang.name for lump in outcome.lost if lump.whole})
    shrunk = sum(len(lump.pods) for lump in outcome.lost if not lump.whole)
    return (
        f"{stopped} stopped, {shrunk} growth replicas taken, {len(outcome.moved)} pods moved, by {law.kind}"
    )
