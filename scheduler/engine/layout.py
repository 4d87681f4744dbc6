"""Here we lay a snapshot out as boards, one per pool, and set aside who cannot be considered."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from scheduler.engine.board import Board
from scheduler.engine.eligible import delay_left
from scheduler.engine.gang import Gang, roles_of
from scheduler.engine.ledger import KINDS, within
from scheduler.engine.model import Pod, PodState, Reservation, Snapshot, Workload
from scheduler.engine.order import in_project
from scheduler.engine.plan import Numbers, Reason
from scheduler.engine.shapes import shape
from scheduler.engine.shares import settle_shares
from scheduler.engine.soundness import orphans, oversold, sorted_out, unkept
from scheduler.engine.strategy import settled

_GONE = (PodState.COMPLETED, PodState.STOPPING)


def lay_out(snapshot: Snapshot) -> tuple[list[Board], list[str]]:
    """Boards in the order of the pools' names, and what was found broken on the way."""
    layout = _Layout(snapshot)
    for workload in snapshot.workloads:
        layout.lay(workload)
    for board in layout.boards.values():
        for gangs in (board.elastic, board.promised, board.ailing):
            gangs.sort(key=lambda gang: gang.name)
        for peers in board.waiting.values():
            peers.gangs.sort(key=in_project)
        board.pool = settled(board.pool, board.nodes.nodes, board.gangs.values())
        settle_shares(board.pool, board.ledger, board.nodes.capacity())
        layout.notes += oversold(board.nodes)
    return list(layout.boards.values()), layout.notes


class _Layout:
    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self.notes: list[str] = []
        self.queues = {queue.name for queue in snapshot.queues}
        self.pool_of = {node.name: node.pool for node in snapshot.nodes}
        served: set[str] = set()  # one set for all boards: a workload starts in one pool
        self.boards = {
            pool.name: Board(
                pool,
                snapshot.now,
                [node for node in snapshot.nodes if node.pool == pool.name],
                snapshot.queues,
                served,
            )
            for pool in sorted(snapshot.pools, key=lambda pool: pool.name)
        }
        self.finished = {
            workload.name for workload in snapshot.workloads if workload.pods and _is_finished(workload)
        }
        self.known = {workload.name for workload in snapshot.workloads}
        self.promised: dict[str, list[Reservation]] = defaultdict(list)
        self.notes += unkept(snapshot.reservations, self.known)
        self.notes += orphans(snapshot.queues)
        for promise in snapshot.reservations:
            if promise.expires is None or promise.expires > snapshot.now:
                self.promised[promise.workload].append(promise)

    def lay(self, workload: Workload) -> None:
        if workload.pods and workload.name in self.finished:
            return
        if workload.project not in self.queues:
            self.notes.append(f"{workload.name}: there is no project {workload.project}")
            self._hold(workload.pods)
            return
        standing = workload.pods or workload.name in self.promised
        by_pool = self._pods_by_pool(workload) if standing else {}
        homes = list(by_pool) or list(workload.pools)
        for pool in homes:
            board = self.boards.get(pool)
            if board is None:
                self.notes.append(f"{workload.name}: there is no pool {pool}")
                continue
            gang = board.add(workload, homes.index(pool), by_pool.get(pool, ()))
            self._judge(board, gang)

    def _pods_by_pool(self, workload: Workload) -> Mapping[str, Sequence[Pod]]:
        pods: Iterable[Pod] = workload.pods
        if workload.name in self.promised:
            pods = (*pods, *self._promises(workload))
        sound, strange, notes = sorted_out(
            workload.name, tuple(pods), {role.name for role in roles_of(workload.tree)}, self.pool_of
        )
        self.notes += notes
        self._hold(strange)
        by_pool: dict[str, list[Pod]] = {}
        for pod in sound:
            if pod.state is not PodState.COMPLETED:
                by_pool.setdefault(self.pool_of[pod.node], []).append(pod)
        completed = [pod for pod in sound if pod.state is PodState.COMPLETED]
        for held in by_pool.values():
            held.extend(completed)
        return by_pool if by_pool or not completed else {workload.pools[0]: completed}

    def _hold(self, pods: Iterable[Pod]) -> None:
        """Whatever they are, nobody else is put in their place."""
        for pod in pods:
            board = self.boards.get(self.pool_of.get(pod.node, ""))
            if board is not None and pod.state not in (PodState.COMPLETED, PodState.RESERVED):
                board.nodes.hold(pod.node, pod.devices, pod.milli)

    def _promises(self, workload: Workload) -> list[Pod]:
        standing = {(pod.role, pod.index) for pod in workload.pods if pod.state is not PodState.STOPPING}
        return [
            Pod(p.role, p.index, p.node, p.devices, p.milli, PodState.RESERVED, self.now)
            for p in self.promised[workload.name]
            if (p.role, p.index) not in standing
        ]

    def _judge(self, board: Board, gang: Gang) -> None:
        """Count what it asks for, and line it up unless something of its own keeps it back."""
        reason = self._kept_back(gang)
        if reason is None or reason[0] is Reason.BACKOFF:
            _count_request(gang)
        if gang.standing:
            whole = gang.is_whole
            if gang.may_grow or not whole or any(part.count > part.role.max for part in gang.parts):
                board.ailing.append(gang)
            if whole:
                return
        if reason is None:
            board.wait(_kind(board, gang), gang)
        else:
            board.refuse(gang, *reason)

    def _kept_back(self, gang: Gang) -> tuple[Reason, Numbers] | None:
        workload = gang.workload
        if workload.misconfigured:
            return Reason.MISCONFIGURED, {"why": workload.misconfigured}
        if workload.suspended:
            return Reason.SUSPENDED, {}
        if workload.waits_for:
            unmet = [name for name in workload.waits_for if name in self.known and name not in self.finished]
            if unmet:
                return Reason.DEPENDENCY_NOT_MET, {"waits_for": ", ".join(unmet), "count": len(unmet)}
        if workload.pods and gang.is_leaving:
            return Reason.BACKOFF, {"why": "its own pods have not stopped yet", "until": None}
        if workload.backoff_until is not None and workload.backoff_until > self.now and not gang.stands:
            return Reason.BACKOFF, {
                "until": workload.backoff_until,
                "seconds": workload.backoff_until - self.now,
                "preemptions": workload.preemptions,
            }
        return None


def _kind(board: Board, gang: Gang) -> Hashable:
    """Equal for those to whom one answer can be given."""
    workload = gang.workload
    ends = workload.max_runtime if board.pool.reservation_after is not None else None
    waits = delay_left(board, workload) > 0
    return gang.account, gang.choice, workload.priority, gang.firm, shape(gang), ends, waits


def _is_finished(workload: Workload) -> bool:
    """Everything its minimum asks for has ended well."""
    for pod in workload.pods:
        if pod.state is not PodState.COMPLETED:
            return False
    done: dict[str, int] = defaultdict(int)
    for pod in workload.pods:
        done[pod.role] += 1
    return all(done[role.name] >= role.min for role in roles_of(workload.tree))


def _count_request(gang: Gang) -> None:
    """What is asked beyond what is held, as far as bounds could ever allow it to start."""
    more = [0, 0, 0]
    for part in gang.parts:
        missing = part.role.max - part.count
        if missing > 0:
            for kind in KINDS:
                more[kind] += missing * part.amounts[kind]
    if gang.firm:
        more = _within_quota(gang, more)
    if not any(more):
        return
    if not gang.standing and not _could_ever_start(gang):
        return
    for account in gang.account.path:
        for kind in KINDS:
            account.asked_for[kind] += more[kind]


def _within_quota(gang: Gang, more: Sequence[int]) -> list[int]:
    """As far as it could ever grow: what is not preemptible stays within quota."""
    held = [sum(len(part.live) * part.amounts[kind] for part in gang.parts) for kind in KINDS]
    most = [min(account.quota[kind] for account in gang.account.path) for kind in KINDS]
    return [max(0, min(more[kind], most[kind] - held[kind])) for kind in KINDS]


def _could_ever_start(gang: Gang) -> bool:
    asked, nothing = gang.asked, (0, 0, 0)
    return all(
        within(nothing, account.cap, asked) and (not gang.firm or within(nothing, account.quota, asked))
        for account in gang.account.path
    )
