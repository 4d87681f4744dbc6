"""Here we lay one pool out and try moves on it: what a trial does not keep is undone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from berth.core.amounts import MILLI
from scheduler.engine.gang import ALIVE, Gang, Part, gpus_of, roles_of
from scheduler.engine.ledger import Ledger
from scheduler.engine.matching import Matcher
from scheduler.engine.model import Node, Pod, PodState, Pool, Queue, Request, Role, Workload
from scheduler.engine.nodes import Nodes, Spot
from scheduler.engine.order import Turn
from scheduler.engine.plan import Bundle, Evict, Eviction, Kind, Place, Reason, Step

Numbers = Mapping[str, int | float | str | None]


class Move(NamedTuple):
    """One pod put on the board (`placed`) or taken off it."""

    gang: Gang
    part: Part
    pod: Pod
    node: int
    placed: bool
    starts_now: bool


class Trial:
    """Moves tried for one workload. Unless kept, they leave only a reason behind."""

    __slots__ = ("board", "evictions", "gang", "kind", "message", "numbers", "otherwise", "start")

    def __init__(self, board: "Board", gang: Gang, otherwise: Reason) -> None:
        self.board, self.gang, self.otherwise = board, gang, otherwise
        self.kind: Kind | None = None
        self.message = ""
        self.evictions: tuple[Eviction, ...] = ()
        self.numbers: Numbers = {}

    def keep(self, kind: Kind, message: str = "", evictions: tuple[Eviction, ...] = ()) -> None:
        self.kind, self.message, self.evictions = kind, message, evictions

    def refuse(self, reason: Reason, numbers: Numbers) -> None:
        """Say better than `otherwise` why nothing came of it."""
        self.otherwise, self.numbers = reason, numbers

    def __enter__(self) -> Self:
        self.start = self.board.mark()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        board = self.board
        if self.kind is None or kind is not None:
            board.rewind(self.start)
            board.refuse(self.gang, self.otherwise, self.numbers)
        else:
            board.settle(self)


class Board:
    """One pool: its nodes, its queues, its gangs, and a log of what was moved since it was laid out."""

    def __init__(
        self, pool: Pool, now: int, nodes: Sequence[Node], queues: Sequence[Queue], served: set[str]
    ) -> None:
        self.pool, self.now = pool, now
        self.nodes, self.queues = Nodes(nodes, pool.cpu_load_limit), queues
        self.ledger = Ledger(pool, queues)
        self.gangs: dict[str, Gang] = {}
        self.waiting: list[Gang] = []  # below their minimum when laid out, and free to start
        self.line: dict[str, tuple[Turn, ...]] = {}  # who stood in line, in that order, and by what key
        self.served = served  # workloads given something in this cycle, in any pool
        self.evicted: set[str] = set()  # gangs stopped in this cycle
        self.bundles: list[Bundle] = []
        self.refusals: dict[str, dict[Reason, Numbers]] = {}
        self.trials = 0
        self.upheavals = 0  # how many times kept moves took something away from a queue
        self._log: list[Move] = []
        self._matcher = Matcher(self.nodes.nodes)
        self._memories = sorted({node.gpu_memory_mib for node in self.nodes.nodes if node.gpus})

    # -- laying out

    def add(self, workload: Workload, choice: int, pods: Iterable[Pod]) -> Gang:
        parts = {id(role): self._part(role) for role in roles_of(workload.tree)}
        gang = Gang(workload, self.ledger.accounts[workload.project], choice, parts)
        self.gangs[gang.name] = gang
        by_role = {part.role.name: part for part in gang.parts}
        for pod in pods:
            self._stand(gang, by_role[pod.role], pod)
        return gang

    def _part(self, role: Role) -> Part:
        return Part(
            role, self._typical_milli(role.request), self._matcher.mask(role), self._matcher.soft(role)
        )

    def _typical_milli(self, request: Request) -> int:
        """Of the smallest kind of device that can hold it: what a request by memory counts for."""
        if not request.gpu_memory_mib:
            return request.gpu
        enough = next((size for size in self._memories if size >= request.gpu_memory_mib), 0)
        return -(-MILLI * request.gpu_memory_mib // enough) if enough else MILLI

    def _stand(self, gang: Gang, part: Part, pod: Pod) -> None:
        """A pod as it was found, before anything is tried."""
        i = self.nodes.index.get(pod.node, -1)
        if pod.state is PodState.COMPLETED:
            part.done += 1
            part.used.add(pod.index)
        elif pod.state is PodState.STOPPING:
            part.used.add(pod.index)
            if i >= 0:
                self.nodes.leave(i, pod.devices, pod.milli, part.request)
        elif i >= 0:
            self.nodes.take(i, pod.devices, pod.milli, part.request)
            self._charge(gang, part, pod, 1)
            if pod.state in ALIVE:
                part.live[pod.index] = pod
                if part.on is not None:
                    part.on[i] = part.on.get(i, 0) + 1
            else:
                part.used.add(pod.index)

    def _charge(self, gang: Gang, part: Part, pod: Pod, sign: int) -> None:
        _, cpu, memory = part.amounts
        self.ledger.charge(gang.account, sign * gpus_of(pod), sign * cpu, sign * memory, gang.firm)

    # -- trying

    def trial(self, gang: Gang, otherwise: Reason) -> Trial:
        self.trials += 1
        return Trial(self, gang, otherwise)

    def put(self, gang: Gang, part: Part, index: int, spot: Spot) -> None:
        i, devices, milli = spot
        pod = Pod(
            part.role.name, index, self.nodes.nodes[i].name, devices, milli, PodState.RESERVED, self.now
        )
        starts_now = self.nodes.starts_now(i, devices, milli, part.request)
        self._arrive(gang, part, pod, i)
        self._log.append(Move(gang, part, pod, i, True, starts_now))

    def drop(self, gang: Gang, part: Part, pod: Pod) -> None:
        """Ask a standing pod to go. What it holds is free for good, but not yet."""
        i = self.nodes.index[pod.node]
        self._depart(gang, part, pod, i)
        self.nodes.leave(i, pod.devices, pod.milli, part.request)
        self._log.append(Move(gang, part, pod, i, False, False))

    def mark(self) -> int:
        return len(self._log)

    def rewind(self, mark: int) -> None:
        log = self._log
        while len(log) > mark:
            move = log.pop()
            if move.placed:
                self._depart(move.gang, move.part, move.pod, move.node)
            else:
                self.nodes.leave(move.node, move.pod.devices, move.pod.milli, move.part.request, -1)
                self._arrive(move.gang, move.part, move.pod, move.node)

    def moves(self, since: int) -> Iterator[Move]:
        return iter(self._log[since:])

    def _arrive(self, gang: Gang, part: Part, pod: Pod, i: int) -> None:
        self.nodes.take(i, pod.devices, pod.milli, part.request)
        self._charge(gang, part, pod, 1)
        part.live[pod.index] = pod
        if part.on is not None:
            part.on[i] = part.on.get(i, 0) + 1

    def _depart(self, gang: Gang, part: Part, pod: Pod, i: int) -> None:
        self.nodes.give(i, pod.devices, pod.milli, part.request)
        self._charge(gang, part, pod, -1)
        del part.live[pod.index]
        if part.on is not None:
            part.on[i] -= 1

    # -- keeping and refusing

    def settle(self, trial: Trial) -> None:
        """Write the kept moves down as a bundle. A gang starts when all of it can."""
        assert trial.kind is not None
        moves = self._log[trial.start :]
        waits = {move.gang.name for move in moves if not (move.placed and move.starts_now)}
        steps: list[Step] = []
        for move in moves:
            pod, name = move.pod, move.gang.name
            if move.placed:
                late = name in waits
                steps.append(Place(name, pod.role, pod.index, pod.node, pod.devices, pod.milli, late))
            else:
                steps.append(Evict(name, pod.role, pod.index, pod.node, pod.devices, pod.milli))
        kind = trial.kind
        if kind is Kind.START and waits:
            kind = Kind.RESERVE
        self.upheavals += bool(trial.evictions)
        self.refusals.pop(trial.gang.name, None)
        self.served.add(trial.gang.name)
        self.evicted.update(eviction.workload for eviction in trial.evictions if eviction.whole)
        self.bundles.append(
            Bundle(kind, trial.gang.name, self.pool.name, tuple(steps), trial.evictions, trial.message)
        )

    def stood_in_line(self, gang: Gang, key: tuple[Turn, ...]) -> None:
        self.line.setdefault(gang.name, key)

    def refuse(self, gang: Gang, reason: Reason, numbers: Numbers) -> None:
        self.refusals.setdefault(gang.name, {})[reason] = numbers
