"""Here we count what waits for capacity that limits allow: what an autoscaler should know."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from berth.core.amounts import Amounts
from scheduler.engine.board import Board
from scheduler.engine.eligible import pending
from scheduler.engine.fresh import could_add, fresh_nodes
from scheduler.engine.gang import Gang, Peers, Want, ways
from scheduler.engine.ledger import KINDS, NO_BOUND, Account
from scheduler.engine.order import Line, in_project
from scheduler.engine.placement import place, place_most
from scheduler.engine.plan import Demand, Reason, UnmetShape
from scheduler.engine.spots import Horizon

ABOUT_CAPACITY = {Reason.WAITING_FOR_CAPACITY, Reason.FRAGMENTED, Reason.TOPOLOGY}

Sums = dict[Account, list[int]]
Full = set[tuple[Hashable, str]]  # what is asked for and by which role, where nothing is free any more


@dataclass(frozen=True, slots=True)
class Alike:
    """The first so many of peers who wait for capacity, but for those who are counted elsewhere."""

    peers: Peers
    gone: Collection[str]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Gang]:
        waiting = islice(self.peers.gangs, self.peers.at, None)
        return islice((gang for gang in waiting if gang.name not in self.gone), self.count)

    @property
    def first(self) -> Gang:
        return next(iter(self))


def unmet(board: Board, waiting: Sequence[Alike]) -> tuple[Demand, list[Gang]]:
    """The pool's unmet demand, and those that so many more nodes would serve."""
    shapes = tuple(
        UnmetShape(first.name, want.part.role.name, len(same), want.count, Amounts(*want.part.amounts),
                   want.part.request.devices, gang=True)
        for same in waiting for first in (same.first,) for want in next(ways(first))
    )  # fmt: skip
    wanted, served = _nodes_wanted(board, waiting, sum(shape.replicas * shape.workloads for shape in shapes))
    queued = sum(shape.amounts.gpu * shape.replicas * shape.workloads for shape in shapes)
    return Demand(board.pool.name, queued, wanted, shapes), served


def allowed(board: Board, passed_on: Collection[str]) -> list[Alike]:
    """Those who wait for capacity and that bounds allow all at once; those alike together, in order.

    `passed_on` names workloads that another pool, which they prefer, counts already.
    """
    held: Sums = {}
    firm: Sums = {}
    found: list[Alike] = []
    gone = board.served | board.evicted | set(passed_on)
    line = Line(board, [peers for peers in pending(board) if ABOUT_CAPACITY & peers.found.keys()])
    fewer = _fewer(board, gone)
    for peers, first in line:
        line.leave(peers)
        sums = list(_bounded(first, held, firm))
        fits = len(peers.gangs) - peers.at - fewer[peers]
        for now, bound in sums:
            fits = min(fits, _times(now, bound, first.asked))
        for now, _ in sums:
            for kind in KINDS:
                now[kind] += first.asked[kind] * fits
        if fits:
            found.append(Alike(peers, gone, fits))
    return found


def _bounded(gang: Gang, held: Sums, firm: Sums) -> Iterator[tuple[list[int], Sequence[int]]]:
    """What its queues would hold by now, where that is bounded, with the bound."""
    for account in gang.account.path:
        if account.capped:
            yield held.setdefault(account, list(account.allocated)), account.cap
        if gang.firm:
            yield firm.setdefault(account, list(account.firm)), account.quota


def _fewer(board: Board, gone: Collection[str]) -> Counter[Peers]:
    """How many of peers, from the one who speaks for them on, are gone."""
    found: Counter[Peers] = Counter()
    for name in gone:
        gang = board.gangs.get(name)
        if gang is not None and gang.peers is not None and _is_ahead(gang, gang.peers):
            found[gang.peers] += 1
    return found


def _is_ahead(gang: Gang, peers: Peers) -> bool:
    return peers.at < len(peers.gangs) and in_project(peers.gangs[peers.at]) <= in_project(gang)


def _times(held: Sequence[int], bound: Sequence[int], asked: Sequence[int]) -> int:
    """How many times what is asked fits under the bound."""
    return max(0, min([(bound[k] - held[k]) // asked[k] for k in KINDS if asked[k]], default=NO_BOUND))


def _nodes_wanted(board: Board, waiting: Sequence[Alike], replicas: int) -> tuple[int, list[Gang]]:
    """Fill what is free, then fresh nodes one after the other; a gang that does not fit asks for none."""
    more = could_add(board)
    if not more or not replicas:
        return 0, []
    fresh = Board(board.pool, board.now, fresh_nodes(board, min(more, replicas)), board.queues, set())
    start, served = board.mark(), []
    refused: set[Hashable] = set()
    full = Full()
    for same in waiting:
        for gang in () if same.peers.asks in refused else same:
            before, before_fresh = board.mark(), fresh.mark()
            if not _fill(board, fresh, gang, full):
                board.rewind(before)
                fresh.rewind(before_fresh)
                refused.add(same.peers.asks)  # nor will its peers fit, nor who asks for the same elsewhere
                break
            served.append(gang)
    board.rewind(start)
    used = sum(fresh.nodes.pods[i] < node.max_pods for i, node in enumerate(fresh.nodes.nodes))
    return used, served


def _fill(board: Board, fresh: Board, gang: Gang, full: Full) -> bool:
    twin = fresh.add(gang.workload, 0, ())
    asks = None if gang.peers is None else gang.peers.asks
    for want in next(ways(gang)):
        name, left = want.part.role.name, want.count
        if (asks, name) not in full:
            left -= place_most(board, gang, Want(want.part, left), Horizon.BOOTING, None)
            if left:
                full.add((asks, name))
        if left and not place(fresh, twin, Want(twin.part(name), left), Horizon.NOW, None):
            return False
    return True
