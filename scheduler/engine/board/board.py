"""Board of one pool. Trials place, evict and move pods on the board and are undone unless accepted."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from scheduler.engine.board.cycle_state import CycleState
from scheduler.engine.board.gang import ALIVE, BoardRole, Gang, PendingGroup, gpus_of, roles_of
from scheduler.engine.board.ledger import Ledger, QueueAccount
from scheduler.engine.board.matching import Matcher
from scheduler.engine.board.nodes import Nodes, Spot
from scheduler.engine.board.request_mix import Mix
from scheduler.engine.board.steps import Move, key_of, rewritten, step_of
from scheduler.engine.board.topology import Topology
from scheduler.engine.explain.reasons import nearest
from scheduler.engine.model import Node, Pod, PodState, Pool, Queue, Role, Workload
from scheduler.engine.plan import Bundle, Eviction, Kind, Numbers, Place, Reason

if TYPE_CHECKING:
    from scheduler.engine.placement.fragmentation import Fragmentation


class Trial:
    """Moves tried for one gang: undone when the block ends, unless accepted.

    A trial that is not accepted records a reason: the one passed to `refuse`, or else `otherwise`. An
    optional trial has no `otherwise`, because its failure does not leave the gang pending.
    """

    __slots__ = (
        "board", "evictions", "gang", "kind", "message", "numbers", "reason", "retry", "start", "waits",
    )  # fmt: skip

    def __init__(self, board: "Board", gang: Gang, otherwise: Reason | None) -> None:
        self.board, self.gang, self.reason = board, gang, otherwise
        self.kind: Kind | None = None
        self.message = ""
        self.evictions: tuple[Eviction, ...] = ()
        self.numbers: Numbers = {}
        self.waits = False  # start only after the victims have stopped, even on free nodes
        self.retry = False

    def accept(
        self, kind: Kind, message: str = "", evictions: tuple[Eviction, ...] = (), retry: bool = False
    ) -> None:
        """Turn the moves into a bundle. With `retry`, try other pending gangs again, which may fit now."""
        self.kind, self.message, self.evictions, self.retry = kind, message, evictions, retry

    def refuse(self, reason: Reason, numbers: Numbers) -> None:
        """Set the reason that is recorded for the gang and its group."""
        self.reason, self.numbers = reason, numbers

    def __enter__(self) -> Self:
        self.start = len(self.board._log)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        board = self.board
        if self.kind is not None and kind is None:
            board.accept(self)
            return
        board.rewind(self.start)
        if self.reason is not None:
            board.add_reason(self.gang, self.reason, self.numbers)


class Board:
    """Nodes, queues and gangs of one pool, with a log of all moves since the board was laid out."""

    def __init__(
        self, pool: Pool, now: int, nodes: Sequence[Node], queues: Sequence[Queue], served: set[str]
    ) -> None:
        """Lay out an empty board.

        All boards share `served`: the workloads that this cycle placed or scaled.
        """
        self.pool = self.pool_as_given = pool
        self.now = now
        self.nodes, self.queues = Nodes(nodes, pool.cpu_load_limit), queues
        self.ledger = Ledger(pool, queues)
        self.matcher = Matcher(self.nodes.nodes)
        self.topology = Topology(pool.topology, self.nodes)
        self.can_grow = pool.nodes_max is not None and len(nodes) < pool.nodes_max
        self.gangs: dict[str, Gang] = {}
        self.mix = Mix(self.gangs)
        self.by_project: dict[QueueAccount, dict[str, Gang]] = {}  # gangs that have pods
        self.on_node: list[dict[int, Move]] = [{} for _ in nodes]  # per node: moves by `id(pod)`
        # Groups of gangs that may start: they were below their minimum when the board was laid out.
        self.waiting: dict[Hashable, PendingGroup] = {}
        self.groups_by_project: dict[QueueAccount, list[PendingGroup]] = {}
        self.elastic: list[Gang] = []
        self.reserved: list[Gang] = []  # with reservations from an earlier cycle
        self.incomplete: list[Gang] = []  # with pods, but not in a steady state
        self.not_eligible: dict[str, tuple[Reason, Numbers]] = {}  # suspended, in backoff and the like
        self.served = served
        self.cycle = CycleState()
        self._log: list[Move] = []
        self._emptied: list[tuple[BoardRole, int]] = []  # indices blocked until their pod has stopped
        self._fresh: dict[int, Move] = {}  # accepted placements of this cycle, by the pod's identity

    # -- laying out

    def add(self, workload: Workload, choice: int, pods: Iterable[Pod]) -> Gang:
        parts = tuple(map(self._part, roles_of(workload.tree)))
        gang = Gang(workload, self.ledger.accounts[workload.project], choice, parts)
        self.gangs[gang.name] = gang
        if pods:
            gang.pods = tuple(pods)
            by_role = {part.role.name: part for part in parts}
            for pod in pods:
                self._stand(gang, by_role[pod.role], pod)
        self.mix.count(gang, 1)
        return gang

    def remove(self, gang: Gang) -> None:
        """Undo `add`. No trial may be open."""
        del self.gangs[gang.name]
        self.mix.count(gang, -1)
        parts = {part.role.name: part for part in gang.parts}
        for pod in gang.pods:
            part, i = parts[pod.role], self.nodes.index.get(pod.node, -1)
            if pod.state is PodState.COMPLETED or i < 0:
                continue
            if pod.state in ALIVE:
                self._depart(Move(gang, part, pod, i, True, True))
            elif pod.state is PodState.STOPPING:
                self._leaves(gang, part, pod, i, -1)
            else:
                self.nodes.give(i, pod.devices, pod.milli, part.request)
                self._charge(gang, part, pod, -1)

    def _part(self, role: Role) -> BoardRole:
        request, matcher = role.request, self.matcher
        milli = matcher.milli(role) if request.gpu_memory_mib else request.gpu
        return BoardRole(role, milli, matcher.mask(role), matcher.soft(role))

    def _stand(self, gang: Gang, part: BoardRole, pod: Pod) -> None:
        """Put a pod of the snapshot on the board."""
        i = self.nodes.index.get(pod.node, -1)
        if pod.state is PodState.COMPLETED:
            part.done += 1
            part.used.add(pod.index)
        elif pod.state is PodState.STOPPING:
            part.used.add(pod.index)
            if i >= 0:
                self._leaves(gang, part, pod, i, 1)
        elif i >= 0:
            if pod.devices and max(pod.devices) >= len(self.nodes.devices[i]):
                self.nodes.widen(i, pod.devices)
            self.nodes.take(i, pod.devices, pod.milli, part.request)
            self._charge(gang, part, pod, 1)
            if pod.state in ALIVE:
                self._line_up(Move(gang, part, pod, i, True, True))
            else:
                part.used.add(pod.index)

    def _leaves(self, gang: Gang, part: BoardRole, pod: Pod, i: int, sign: int) -> None:
        self.nodes.leave(i, pod.devices, pod.milli, part.request, sign)
        for account in gang.account.path:
            for kind, amount in enumerate((gpus_of(pod), *part.amounts[1:])):
                account.leaving[kind] += sign * amount

    def _charge(self, gang: Gang, part: BoardRole, pod: Pod, sign: int) -> None:
        _, cpu, memory = part.amounts
        gpu = sign * pod.milli * len(pod.devices)
        self.ledger.charge(gang.account, gpu, sign * cpu, sign * memory, gang.non_preemptible)

    # -- trying

    @cached_property
    def fragmentation(self) -> "Fragmentation":
        """Fragmentation index, created on first use because NumPy loads slowly."""
        from scheduler.engine.placement.fragmentation import Fragmentation

        return Fragmentation(self.nodes, self.mix)

    def forget_fragmentation(self) -> None:
        self.__dict__.pop("fragmentation", None)
        self.nodes.touched = None

    def trial(self, gang: Gang, otherwise: Reason | None) -> Trial:
        """Open a trial: the only way for an action to place, evict or refuse."""
        self.cycle.trials += 1
        return Trial(self, gang, otherwise)

    def attempt(self) -> int:
        """Count one more attempt inside a trial. Return the mark to rewind to."""
        self.cycle.trials += 1
        return len(self._log)

    def refuse_all(self, refusals: Iterable[tuple[Gang, Reason | None, Numbers]]) -> None:
        """Count and refuse one trial per gang, for gangs that cannot be placed on the unchanged board."""
        for gang, reason, numbers in refusals:
            self.cycle.trials += 1
            if reason is not None:
                self.add_reason(gang, reason, numbers)

    def put(self, gang: Gang, part: BoardRole, index: int, spot: Spot) -> None:
        self.cycle.reclaimable_cache.pop(gang.account, None)
        i, devices, milli = spot
        pod = Pod(
            part.role.name, index, self.nodes.nodes[i].name, devices, milli, PodState.RESERVED, self.now
        )
        move = Move(gang, part, pod, i, True, self.nodes.starts_now(i, devices, milli, part.request))
        self._arrive(move)
        self._log.append(move)

    def drop(self, gang: Gang, part: BoardRole, pod: Pod) -> None:
        """Take a pod off the board. Its resources count as leaving until it has stopped."""
        move = Move(gang, part, pod, self.nodes.index[pod.node], False, False)
        self._depart(move)
        if pod.state is not PodState.RESERVED:  # a reserved pod does not run: nothing has to be freed
            self.nodes.leave(move.node, pod.devices, pod.milli, part.request)
        self._log.append(move)

    def mark(self) -> int:
        return len(self._log)

    def rewind(self, mark: int) -> None:
        log = self._log
        while len(log) > mark:
            move = log.pop()
            if move.placed:
                self._depart(move)
            else:
                if move.pod.state is not PodState.RESERVED:
                    self.nodes.leave(move.node, move.pod.devices, move.pod.milli, move.part.request, -1)
                self._arrive(move)

    def reset(self) -> set[str]:
        """Undo all moves, accepted or not. Return the names of the gangs that had moves."""
        touched = {move.gang.name for move in self._log}
        for part, index in self._emptied:
            part.used.discard(index)
            part.vacate(index)
        self._emptied.clear()
        self.rewind(0)
        self._fresh.clear()
        return touched

    def moves(self, since: int) -> list[Move]:
        return self._log[since:]

    def _arrive(self, move: Move) -> None:
        gang, part, pod, i = move[:4]
        self.nodes.take(i, pod.devices, pod.milli, part.request)
        self._charge(gang, part, pod, 1)
        self._line_up(move)

    def _line_up(self, move: Move) -> None:
        gang, part, pod, i = move[:4]
        part.live[pod.index] = pod
        self.on_node[i][id(pod)] = move
        if not gang.standing:
            self.by_project.setdefault(gang.account, {})[gang.name] = gang
        gang.standing += 1
        gang.whole_victim = None
        if part.on is not None:
            part.on[i] = part.on.get(i, 0) + 1

    def _depart(self, move: Move) -> None:
        gang, part, pod, i = move[:4]
        self.nodes.give(i, pod.devices, pod.milli, part.request)
        self._charge(gang, part, pod, -1)
        del part.live[pod.index]
        part.vacate(pod.index)
        del self.on_node[i][id(pod)]
        gang.standing -= 1
        gang.whole_victim = None
        if not gang.standing:
            del self.by_project[gang.account][gang.name]
        if part.on is not None:
            part.on[i] -= 1

    # -- accepting and refusing

    def accept(self, trial: Trial) -> None:
        """Turn the moves of an accepted trial into a bundle. A gang starts when all its replicas can."""
        assert trial.kind is not None
        moves, gang = self._log[trial.start :], trial.gang
        self.cycle.accepted_trials += 1
        self.cycle.evicting_trials += trial.retry or any(not move.placed for move in moves)
        withdrawn_ids = {id(move.pod) for move in moves if not move.placed} & self._fresh.keys()
        moves = self._start_otherwise(withdrawn_ids, moves) if withdrawn_ids else moves
        waits = {move.gang.name for move in moves if not move.starts_now}
        if trial.waits:
            waits.add(gang.name)
        steps = tuple(step_of(move, waits) for move in moves)
        kind = Kind.RESERVE if trial.kind is Kind.START and waits else trial.kind
        bundle = Bundle(kind, gang.name, self.pool.name, steps, trial.evictions, trial.message)
        self._write_down(bundle)
        if gang.name in waits and gang.standing == sum(move.placed and move.gang is gang for move in moves):
            self.cycle.reserved_only.add(gang.name)
        self._fresh.update((id(move.pod), move) for move in moves if move.placed)
        self.cycle.refusals.pop(gang.name, None)
        self.served.add(gang.name)
        self._empty(moves)
        if any(not move.placed for move in moves):
            if any(move.gang is not gang for move in moves):
                self.cycle.excluded.add(gang.name)
            self.cycle.excluded.update(move.gang.name for move in moves if move.placed)
        for eviction in trial.evictions:
            if eviction.whole:
                self.cycle.evicted.add(eviction.workload)
            elif eviction.kind is Kind.SHRINK:
                self.cycle.scaled_down.add(eviction.workload)

    def _empty(self, moves: Sequence[Move]) -> None:
        for _, part, pod, _, placed, _ in moves:
            going = not placed and pod.state is not PodState.RESERVED
            if going and pod.index not in part.live and pod.index not in part.used:
                part.used.add(pod.index)
                self._emptied.append((part, pod.index))

    def _write_down(self, bundle: Bundle) -> None:
        """Append a bundle. All growth of one gang goes into one bundle."""
        if bundle.kind is Kind.GROW:
            for at, earlier in enumerate(self.cycle.bundles):
                if earlier.kind is Kind.GROW and earlier.workload == bundle.workload:
                    evictions = earlier.evictions + bundle.evictions
                    self.cycle.bundles[at] = replace(
                        earlier, steps=earlier.steps + bundle.steps, evictions=evictions
                    )
                    return
        self.cycle.bundles.append(bundle)

    def start_reserved(self, gang: Gang) -> None:
        """Start the reserved pods of a gang once their capacity is free."""
        places = tuple(
            Place(gang.name, pod.role, pod.index, pod.node, pod.devices, pod.milli)
            for part in gang.parts
            for pod in part.in_order
            if pod.state is PodState.RESERVED
        )
        self.cycle.refusals.pop(gang.name, None)
        self.cycle.reserved_only.discard(gang.name)
        self.cycle.started_reservations.add(gang.name)
        self._write_down(
            Bundle(Kind.START, gang.name, self.pool.name, places, message="the reserved capacity is free now")
        )

    def is_fresh(self, pod: Pod) -> bool:
        """Return whether this cycle placed the pod."""
        return id(pod) in self._fresh

    def _start_otherwise(self, withdrawn_ids: AbstractSet[int], moves: Sequence[Move]) -> list[Move]:
        """Withdraw or relocate pods that this cycle had already placed. Return the remaining moves."""
        withdrawn = [self._fresh.pop(pod) for pod in sorted(withdrawn_ids)]
        keys = {key_of(move) for move in withdrawn}
        instead = {key_of(move): move for move in moves if move.placed and key_of(move) in keys}
        self.served.difference_update(move.gang.name for move in withdrawn if not move.gang.stands)
        for move in withdrawn:
            if move.gang.group is not None:
                move.gang.group.at = 0
        self._fresh.update((id(move.pod), move) for move in instead.values())
        waits = self._wait_now(instead.values())
        self.cycle.bundles = rewritten(self.cycle.bundles, keys, instead, waits)
        return [move for move in moves if id(move.pod) not in withdrawn_ids and key_of(move) not in instead]

    def _wait_now(self, moves: Iterable[Move]) -> set[str]:
        """Return the gangs that were to start in this cycle and now have to wait for a new place."""
        waits = {move.gang.name for move in moves if not move.starts_now and self.starts(move.gang)}
        self.cycle.reserved_only |= waits
        return waits

    def fresh_gangs(self) -> Iterable[Gang]:
        """Return the gangs with at least one pod that this cycle placed."""
        return {move.gang: None for move in self._fresh.values()}

    def starts(self, gang: Gang) -> bool:
        """Return whether the whole gang starts in this cycle."""
        return gang.name not in self.cycle.reserved_only and all(
            self.is_fresh(pod) for part in gang.parts for pod in part.live.values()
        )

    def reasons(self, gang: Gang) -> Mapping[Reason, Numbers]:
        """Return the reasons why the gang is pending: those of its group and its own."""
        own = self.cycle.refusals.get(gang.name, {})
        return own if gang.group is None else {**gang.group.reasons, **own}

    def add_reason(self, gang: Gang, reason: Reason, numbers: Numbers) -> None:
        """Record a reason why the gang and its group are pending."""
        if gang.group is None:
            self.add_own_reason(gang, reason, numbers)
            return
        result = gang.group.reasons
        if reason is Reason.NO_RECLAIMABLE_RESOURCES and result.get(reason, numbers) is not numbers:
            numbers = max(result[reason], numbers, key=nearest)
        result[reason] = numbers

    def add_own_reason(self, gang: Gang, reason: Reason, numbers: Numbers) -> None:
        self.cycle.refusals.setdefault(gang.name, {})[reason] = numbers
