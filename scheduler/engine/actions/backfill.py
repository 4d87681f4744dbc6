"""Hold nodes for the workload that has been pending longest, so that smaller workloads do not overtake it.

Nodes are held until the workloads on them end. If the end times are unknown, holds alternate with pauses.
Holds are not stored: each cycle computes them again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import sub

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import exceeded_bound, first_pending_gang
from scheduler.engine.board.gang import Gang, PendingGroup, arrangements
from scheduler.engine.board.ledger import QueueAccount, fits_within, main_resource
from scheduler.engine.board.nodes import NodeHold
from scheduler.engine.board.order import GangKey, PendingOrder, gang_sort_key
from scheduler.engine.board.run_ends import (
    has_finite_runtime,
    has_waited_long_enough,
    known_end_time,
    known_end_times,
)
from scheduler.engine.explain.feasible import permanent_obstacle
from scheduler.engine.placement.find_room import place_arrangement
from scheduler.engine.placement.slots import UsableCapacity

# Length in seconds of the first hold without a known end. Each later hold is twice as long.
FIRST_PERIOD = 1800
MAX_WAIT = 24 * 3600  # maximum wait in seconds; workloads that end later are ignored
MAX_GANGS = 4  # maximum number of gangs per cycle in the search for nodes to hold
MAX_STEPS = 32  # number of attempts after which the search skips more and more end times
NOTHING = (0, 0, 0)


def clear_hold(board: Board) -> None:
    cycle = board.cycle
    cycle.backfill_hold, cycle.find_hold, cycle.overdue, cycle.hold_searches = None, None, [], 0
    cycle.hold_waits_for_project, cycle.considered_for_hold = False, set()


def hold_nodes_for_first_pending_gang(board: Board, groups: Iterable[PendingGroup]) -> None:
    """Arrange for nodes to be held for the first eligible group in `gangs_in_hold_order`.

    The nodes are chosen only when a decision depends on them.
    """
    overdue = [group for group in groups if has_waited_long_enough(board, group.gangs[group.at])]
    if overdue:
        earlier = board.cycle.find_hold or (lambda: board.cycle.backfill_hold)
        board.cycle.find_hold = lambda: earlier() or _find_first_hold(board, overdue)
        board.cycle.overdue = [*board.cycle.overdue, *overdue]


def _find_first_hold(board: Board, overdue: Sequence[PendingGroup]) -> NodeHold | None:
    for gang in gangs_in_hold_order(board, overdue):
        hold_nodes(board, gang)
        if board.cycle.backfill_hold is not None:
            break
    return board.cycle.backfill_hold


def gangs_in_hold_order(board: Board, groups: Sequence[PendingGroup]) -> Iterator[Gang]:
    """Yield each group's next gang.

    Gangs that are first in their project and wait only for nodes come before all others.
    """
    first: dict[QueueAccount, tuple[Gang, PendingGroup]] = {}
    for group in groups:
        gang = first_pending_gang(board, group)
        if gang is not None:
            entry = gang, group
            first[group.account] = min(first.get(group.account, entry), entry, key=_gang_sort_key)
    preferred = {group for gang, group in first.values() if _waits_only_for_nodes(gang)}
    for part in (preferred, [group for group in groups if group not in preferred]):
        order = PendingOrder(board, part)
        for group, gang in order:
            order.skip_group(group)
            yield gang


def _gang_sort_key(entry: tuple[Gang, PendingGroup]) -> GangKey:
    return gang_sort_key(entry[0])


def hold_nodes(board: Board, gang: Gang) -> None:
    """Hold nodes for the gang if it has waited long enough and no nodes are held yet.

    At most MAX_GANGS gangs are tried per cycle.
    """
    cycle = board.cycle
    if not has_waited_long_enough(board, gang):
        return
    is_first = gang.account not in cycle.considered_for_hold
    cycle.considered_for_hold.add(gang.account)
    if cycle.hold_searches >= MAX_GANGS:
        return
    if not fits_within(NOTHING, gang.account.deserved, gang.requested):
        return
    current = cycle.held_nodes()
    takes_over = is_first and cycle.hold_waits_for_project and _waits_only_for_nodes(gang)
    if current is not None and not takes_over:
        return
    key = gang.group.request_key if gang.group is not None else None
    if permanent_obstacle(board, gang, key) is not None:
        return
    cycle.hold_searches += 1
    cycle.backfill_hold = None
    hold = None if current is not None and _fits_now(board, gang) else _find_hold(board, gang)
    cycle.backfill_hold = hold or current
    if hold is not None:
        cycle.hold_waits_for_project = not _waits_only_for_nodes(gang)


def _waits_only_for_nodes(gang: Gang) -> bool:
    """Return whether the gang's project would stay within its fair share if the gang started.

    For a non-preemptible gang, check the quota instead of the fair share.
    """
    account = gang.account
    if gang.non_preemptible:
        return fits_within(account.non_preemptible, account.non_preemptible_quota, gang.requested)
    return fits_within(account.allocated, account.deserved, gang.requested)


def _fits_now(board: Board, gang: Gang) -> bool:
    start = board.log_position()
    fits = _place_gang(board, gang) is not None
    board.rewind(start)
    return fits


def current_hold_or_pause(waited: int) -> tuple[int, bool]:
    """Return when the current hold or pause ends, and True for a hold or False for a pause.

    Each pause is as long as the hold before it, and each hold twice as long as the previous one. All times
    are in seconds since nodes could first be held for the workload.
    """
    number = (waited // (2 * FIRST_PERIOD) + 1).bit_length() - 1
    length, begin = FIRST_PERIOD << number, 2 * FIRST_PERIOD * ((1 << number) - 1)
    holds = waited < begin + length
    return begin + length * (1 if holds else 2), holds


def _find_hold(board: Board, gang: Gang) -> NodeHold | None:
    """Return the nodes to hold for the gang, or None if holding nodes would not let it start sooner."""
    account, start, views = gang.account, board.log_position(), board.nodes.views
    borrows = any(
        need and have > quota
        for need, have, quota in zip(gang.requested, account.allocated, account.quota, strict=True)
    )
    board.nodes.views = {}
    try:
        if exceeded_bound(gang, gang.requested) and _place_gang(board, gang) is not None:
            return None
        # Use expected and unknown end times only if the project stays within its quota.
        for bound, declared_only in ((account.quota, False), (account.deserved, True)):
            if not fits_within(NOTHING, bound, gang.requested) or (borrows and not declared_only):
                continue
            search = _HoldSearch(board, gang, bound)
            hold = search.find_hold_until_known_end(declared_only) or (
                None if declared_only else search.find_hold_on_least_allocated_nodes()
            )
            board.rewind(start)
            if hold is not None:
                return hold
        return None
    finally:
        board.rewind(start)
        board.nodes.views = views  # the views are still valid, because the board has been restored


class _HoldSearch:
    """Search for the nodes where a gang will fit soonest.

    Running gangs are removed in order of their end times until it fits.
    """

    def __init__(self, board: Board, gang: Gang, bound: Sequence[int]) -> None:
        self._board, self._gang, self._bound = board, gang, bound
        nodes, kind = board.nodes, main_resource(gang.requested)
        self._kind = kind
        self._replica = min((part.amounts[kind] for part in gang.parts if part.amounts[kind]), default=0)
        # Free amounts of the main resource, per node and in total, after all processed gangs have ended.
        self._room = list((nodes.gpu, nodes.cpu, nodes.memory)[kind])
        self._usable = sum(room for room in compress(self._room, nodes.ready) if room >= self._replica)
        self._ended: set[str] = set()
        # Gangs that have ended but are still on the board, by node.
        self._to_remove: dict[int, list[Gang]] = defaultdict(list)
        self._removes_immediately = any(account.has_limit for account in gang.account.path[1:])
        self._tries = self._skipped = 0

    def find_hold_until_known_end(self, declared_only: bool) -> NodeHold | None:
        """Return a hold that lasts until the first known end time at which the gang fits, or None."""
        now = self._board.now
        ending: dict[int, list[Gang]] = defaultdict(list)
        for end, gang in known_end_times(self._board, declared_only):
            if end <= now + MAX_WAIT:
                ending[max(end, now)].append(gang)
        last = max(ending, default=0)
        for moment in sorted(ending):
            self._treat_as_ended(ending[moment])
            nodes = self._try_to_fit(last=moment == last)
            if nodes is not None:
                return NodeHold(self._gang.name, nodes, moment)
        return None

    def find_hold_on_least_allocated_nodes(self) -> NodeHold | None:
        """Hold the nodes with the fewest allocated resources for the gang, and return the hold.

        Return None if the pool can add nodes, if the gang would not fit, or if holds are paused.
        """
        board, workload = self._board, self._gang.workload
        _, holds = current_hold_or_pause(board.now - workload.submitted - (board.pool.reservation_after or 0))
        if not holds or board.can_add_nodes:
            return None
        order = self._nodes_by_allocation()
        ends: dict[int, list[int | None]] = {}
        for number, node in enumerate(order, 1):
            gangs = {move.gang.name: move.gang for move in board.on_node[node].values()}
            ending = [gang for gang in gangs.values() if has_finite_runtime(gang)]
            ends[node] = [known_end_time(gang, board.now) for gang in ending]
            self._treat_as_ended(ending)
            nodes = self._try_to_fit(last=number == len(order))
            if nodes is not None:
                until = _latest_end(end for node in nodes & ends.keys() for end in ends[node])
                return NodeHold(self._gang.name, nodes, until)
        return None

    def _nodes_by_allocation(self) -> list[int]:
        """Return the ready nodes, sorted by allocation of the main resource, lowest first."""
        nodes, kind = self._board.nodes, self._kind
        free, key = (nodes.gpu, nodes.cpu, nodes.memory)[kind], ("capacity", kind)
        if key not in nodes.static_cache:
            nodes.static_cache[key] = [node.capacity[kind] for node in nodes.nodes]
        allocated = list(map(sub, nodes.static_cache[key], free))
        return sorted(compress(range(len(allocated)), nodes.ready), key=allocated.__getitem__)

    def _treat_as_ended(self, gangs: Iterable[Gang]) -> None:
        """Treat the gangs as ended. They are removed from the board only when that can affect the result."""
        kind, nodes = self._kind, self._board.nodes
        for gang in gangs:
            if gang.name in self._ended:
                continue
            self._ended.add(gang.name)
            for part in gang.parts:
                for pod in part.live.values():
                    i = nodes.index[pod.node]
                    before = self._room[i]
                    self._room[i] += part.amounts[kind]
                    self._to_remove[i].append(gang)
                    if nodes.ready[i] and self._room[i] >= self._replica:
                        self._usable += self._room[i] - (before if before >= self._replica else 0)
            if self._removes_immediately or gang.account is self._gang.account:
                self._remove_from_board(gang)

    def _remove_from_board(self, gang: Gang) -> None:
        for part in gang.parts:
            for pod in tuple(part.live.values()):
                self._board.remove_pod(gang, part, pod)

    def _try_to_fit(self, last: bool) -> frozenset[int] | None:
        """Return the nodes where the gang fits now, or None. Some attempts are skipped to save time."""
        gang, requested = self._gang, self._gang.requested
        if self._usable < requested[self._kind] or not fits_within(
            gang.account.allocated, self._bound, requested
        ):
            return None
        self._skipped += 1
        if not last and self._skipped < 1 << max(0, self._tries - MAX_STEPS):
            return None
        self._tries, self._skipped = self._tries + 1, 0
        for node in [node for node in self._to_remove if self._room[node] >= self._replica]:
            for ended in self._to_remove.pop(node):
                self._remove_from_board(ended)
        return None if exceeded_bound(gang, requested) else _place_gang(self._board, gang)


def _place_gang(board: Board, gang: Gang) -> frozenset[int] | None:
    for arrangement in arrangements(gang):
        before = board.log_position()
        if place_arrangement(board, gang, arrangement, UsableCapacity.LEAVING):
            return frozenset(move.node for move in board.moves_since(before))
    return None


def _latest_end(ends: Iterable[int | None]) -> int | None:
    """Return the latest end time, or None if any is unknown."""
    latest: int | None = None
    for end in ends:
        if end is None:
            return None
        latest = end if latest is None else max(latest, end)
    return latest
