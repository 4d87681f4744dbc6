"""Board: the mutable state of one pool during a cycle. Trials place, evict and move pods on the board."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from typing_extensions import Self

from scheduler.engine.board.cycle_state import CycleState
from scheduler.engine.board.gang import LIVE_STATES, BoardRole, Gang, PendingGroup, leaf_roles, pod_gpu_milli
from scheduler.engine.board.ledger import Ledger, QueueAccount
from scheduler.engine.board.matching import Matcher
from scheduler.engine.board.nodes import Nodes, Slot
from scheduler.engine.board.request_mix import RequestMix
from scheduler.engine.board.steps import Move, append_bundle, move_key, rewrite_bundles, to_step
from scheduler.engine.board.topology import Topology
from scheduler.engine.model import Node, Pod, PodState, Pool, Queue, Role, Workload
from scheduler.engine.plan import Bundle, Eviction, Kind, Numbers, Place, Reason, policy_rejection_sort_key

if TYPE_CHECKING:
    from scheduler.engine.placement.fragmentation import Fragmentation


class Trial:
    """Context manager for one gang's tentative moves, which are undone on exit unless they are accepted.

    If they are undone, the gang is rejected with the reason passed to `reject` or, by default,
    `default_reason`. An optional trial has no `default_reason`.
    """

    __slots__ = (
        "board", "delayed", "evictions", "gang", "kind", "message", "numbers", "reason", "retry", "start",
    )  # fmt: skip

    def __init__(self, board: "Board", gang: Gang, default_reason: Reason | None) -> None:
        self.board, self.gang, self.reason = board, gang, default_reason
        self.kind: Kind | None = None
        self.message = ""
        self.evictions: tuple[Eviction, ...] = ()
        self.numbers: Numbers = {}
        self.delayed = False  # True: start only after the victims have stopped, even on free nodes
        self.retry = False

    def accept(
        self, kind: Kind, message: str = "", evictions: tuple[Eviction, ...] = (), retry: bool = False
    ) -> None:
        """Accept the tentative moves as one bundle. With `retry`, try other pending gangs again."""
        self.kind, self.message, self.evictions, self.retry = kind, message, evictions, retry

    def reject(self, reason: Reason, numbers: Numbers) -> None:
        """Set the reason to record for the gang and its group if the trial is not accepted."""
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
    """Board of one pool: its nodes, queues and gangs, with a log of all moves since the board was built."""

    def __init__(
        self, pool: Pool, now: int, nodes: Sequence[Node], queues: Sequence[Queue], served: set[str]
    ) -> None:
        """Create a board without workloads.

        All boards share `served`, the names of workloads that were placed or scaled in this cycle.
        """
        self.pool = self.configured_pool = pool
        self.now = now
        self.nodes, self.queues = Nodes(nodes, pool.cpu_load_limit), queues
        self.ledger = Ledger(pool, queues)
        self.matcher = Matcher(self.nodes.nodes)
        self.topology = Topology(pool.topology, self.nodes)
        self.can_add_nodes = pool.nodes_max is not None and len(nodes) < pool.nodes_max
        self.gangs: dict[str, Gang] = {}
        self.mix = RequestMix(self.gangs)
        self.by_project: dict[QueueAccount, dict[str, Gang]] = {}  # gangs that have pods, by project and name
        self.on_node: list[dict[int, Move]] = [{} for _ in nodes]  # moves on each node, by `id(pod)`
        # Gangs that may start because they are below their minimum in the snapshot, grouped by request.
        self.pending_groups: dict[Hashable, PendingGroup] = {}
        self.groups_by_project: dict[QueueAccount, list[PendingGroup]] = {}
        self.elastic_gangs: list[Gang] = []
        self.reserved_gangs: list[Gang] = []  # gangs with reservations from an earlier cycle
        self.incomplete_gangs: list[Gang] = []  # gangs that may scale, or whose pods may start or stop
        # Reasons that prevent gangs from starting, such as a suspension or backoff.
        self.ineligible: dict[str, tuple[Reason, Numbers]] = {}
        self.served = served
        self.cycle = CycleState()
        self._log: list[Move] = []
        # Replica indices that cannot be reused until their pods have stopped.
        self._blocked_indices: list[tuple[BoardRole, int]] = []
        self._new_placements: dict[int, Move] = {}  # accepted placements of this cycle, by `id(pod)`

    def add(self, workload: Workload, choice: int, pods: Iterable[Pod]) -> Gang:
        project = workload.project if self.matcher.has_reserved_nodes else ""
        parts = tuple(self._build_board_role(role, project) for role in leaf_roles(workload.tree))
        gang = Gang(workload, self.ledger.accounts[workload.project], choice, parts)
        self.gangs[gang.name] = gang
        if pods:
            gang.pods = tuple(pods)
            by_role = {part.role.name: part for part in parts}
            for pod in pods:
                self._add_snapshot_pod(gang, by_role[pod.role], pod)
        self.mix.count_gang(gang, 1)
        return gang

    def remove(self, gang: Gang) -> None:
        """Remove a gang that was added with `add`. Must not be called during a trial."""
        del self.gangs[gang.name]
        self.mix.count_gang(gang, -1)
        parts = {part.role.name: part for part in gang.parts}
        for pod in gang.pods:
            part, i = parts[pod.role], self.nodes.index.get(pod.node, -1)
            if pod.state is PodState.COMPLETED or i < 0:
                continue
            if pod.state in LIVE_STATES:
                self._apply_removal(Move(gang, part, pod, i, True, True))
            elif pod.state is PodState.STOPPING:
                self._mark_leaving(gang, part, pod, i, -1)
            else:
                self.nodes.release(i, pod.devices, pod.milli, part.request)
                self._charge_pod(gang, part, pod, -1)

    def _build_board_role(self, role: Role, project: str) -> BoardRole:
        request, matcher = role.request, self.matcher
        if matcher.has_no_constraints(role):
            return BoardRole(role, request.gpu, None, None, request.gpu)
        milli = least_milli = request.gpu
        if request.gpu_memory_mib:
            milli, least_milli = (
                matcher.share_milli_on_smallest_device(role, 0, project),
                matcher.share_milli_on_largest_device(role, project),
            )
        mask = matcher.mask(role, 0, project)
        return BoardRole(role, milli, mask, matcher.avoid_mask(role), least_milli, project)

    def _add_snapshot_pod(self, gang: Gang, part: BoardRole, pod: Pod) -> None:
        i = self.nodes.index.get(pod.node, -1)
        if pod.state is PodState.COMPLETED:
            part.completed += 1
            part.used.add(pod.index)
        elif pod.state is PodState.STOPPING:
            part.used.add(pod.index)
            if i >= 0:
                self._mark_leaving(gang, part, pod, i, 1)
        elif i >= 0:
            if pod.devices and max(pod.devices) >= len(self.nodes.devices[i]):
                self.nodes.add_missing_devices(i, pod.devices)
            self.nodes.allocate(i, pod.devices, pod.milli, part.request)
            self._charge_pod(gang, part, pod, 1)
            if pod.state in LIVE_STATES:
                self._register_pod(Move(gang, part, pod, i, True, True))
            else:
                part.used.add(pod.index)

    def _mark_leaving(self, gang: Gang, part: BoardRole, pod: Pod, i: int, sign: int) -> None:
        self.nodes.mark_leaving(i, pod.devices, pod.milli, part.request, sign)
        for account in gang.account.path:
            for kind, amount in enumerate((pod_gpu_milli(pod), *part.amounts[1:])):
                account.leaving[kind] += sign * amount

    def _charge_pod(self, gang: Gang, part: BoardRole, pod: Pod, sign: int) -> None:
        _, cpu, memory = part.amounts
        gpu = sign * pod.milli * len(pod.devices)
        self.ledger.charge(gang.account, gpu, sign * cpu, sign * memory, gang.non_preemptible)
        if gang.account.load_quotas:
            gang.account.charge_load(part.request, sign)

    @cached_property
    def fragmentation(self) -> "Fragmentation":
        """Fragmentation index, created on first use, because importing NumPy is slow."""
        from scheduler.engine.placement.fragmentation import Fragmentation

        return Fragmentation(self.nodes, self.mix)

    def discard_fragmentation_index(self) -> None:
        self.__dict__.pop("fragmentation", None)
        self.nodes.touched = None

    def trial(self, gang: Gang, default_reason: Reason | None) -> Trial:
        """Start a trial for the gang. Actions place, evict and reject gangs only in trials."""
        self.cycle.trials += 1
        return Trial(self, gang, default_reason)

    def begin_attempt(self) -> int:
        """Count a placement attempt. Return a mark to which the board can be rewound."""
        self.cycle.trials += 1
        return len(self._log)

    def reject_all(self, rejections: Iterable[tuple[Gang, Reason | None, Numbers]]) -> None:
        """Record a rejection for each gang without trying to place it. Each rejection counts as one trial."""
        for gang, reason, numbers in rejections:
            self.cycle.trials += 1
            if reason is not None:
                self.add_reason(gang, reason, numbers)

    def place_pod(self, gang: Gang, part: BoardRole, index: int, slot: Slot) -> None:
        self.cycle.reclaimable_cache.pop(gang.account, None)
        i, devices, milli = slot
        pod = Pod(
            part.role.name, index, self.nodes.nodes[i].name, devices, milli, PodState.RESERVED, self.now
        )
        move = Move(gang, part, pod, i, True, self.nodes.can_start_now(i, devices, milli, part.request))
        self._apply_placement(move)
        self._log.append(move)

    def remove_pod(self, gang: Gang, part: BoardRole, pod: Pod) -> None:
        """Remove a pod. Until it has stopped, its resources are counted as `leaving`."""
        move = Move(gang, part, pod, self.nodes.index[pod.node], False, False)
        self._apply_removal(move)
        if pod.state is not PodState.RESERVED:  # a reserved pod is not running, so there is nothing to stop
            self.nodes.mark_leaving(move.node, pod.devices, pod.milli, part.request)
        self._log.append(move)

    def log_position(self) -> int:
        return len(self._log)

    def rewind(self, mark: int) -> None:
        log = self._log
        while len(log) > mark:
            move = log.pop()
            if move.placed:
                self._apply_removal(move)
            else:
                if move.pod.state is not PodState.RESERVED:
                    self.nodes.mark_leaving(
                        move.node, move.pod.devices, move.pod.milli, move.part.request, -1
                    )
                self._apply_placement(move)

    def undo_all_moves(self) -> set[str]:
        """Undo all moves, including accepted ones, and return the names of affected gangs."""
        touched = {move.gang.name for move in self._log}
        for part, index in self._blocked_indices:
            part.used.discard(index)
            part.release_index(index)
        self._blocked_indices.clear()
        self.rewind(0)
        self._new_placements.clear()
        return touched

    def moves_since(self, since: int) -> list[Move]:
        return self._log[since:]

    def _apply_placement(self, move: Move) -> None:
        gang, part, pod, i = move[:4]
        self.nodes.allocate(i, pod.devices, pod.milli, part.request)
        self._charge_pod(gang, part, pod, 1)
        self._register_pod(move)

    def _register_pod(self, move: Move) -> None:
        gang, part, pod, i = move[:4]
        part.live[pod.index] = pod
        self.on_node[i][id(pod)] = move
        if not gang.pod_count:
            self.by_project.setdefault(gang.account, {})[gang.name] = gang
        gang.pod_count += 1
        gang.gang_victim = None
        if part.replicas_by_node is not None:
            part.replicas_by_node[i] = part.replicas_by_node.get(i, 0) + 1

    def _apply_removal(self, move: Move) -> None:
        gang, part, pod, i = move[:4]
        self.nodes.release(i, pod.devices, pod.milli, part.request)
        self._charge_pod(gang, part, pod, -1)
        del part.live[pod.index]
        part.release_index(pod.index)
        del self.on_node[i][id(pod)]
        gang.pod_count -= 1
        gang.gang_victim = None
        if not gang.pod_count:
            del self.by_project[gang.account][gang.name]
        if part.replicas_by_node is not None:
            part.replicas_by_node[i] -= 1

    def accept(self, trial: Trial) -> None:
        """Append a bundle with the trial's moves. A gang starts only when all its replicas can start."""
        assert trial.kind is not None
        moves, gang = self._log[trial.start :], trial.gang
        self.cycle.accepted_trials += 1
        self.cycle.evicting_trials += trial.retry or any(not move.placed for move in moves)
        withdrawn_ids = {id(move.pod) for move in moves if not move.placed} & self._new_placements.keys()
        moves = self._replace_placements(withdrawn_ids, moves) if withdrawn_ids else moves
        reserved = {move.gang.name for move in moves if not move.starts_now}
        if trial.delayed:
            reserved.add(gang.name)
        steps = tuple(to_step(move, reserved) for move in moves)
        kind = Kind.RESERVE if trial.kind is Kind.START and reserved else trial.kind
        append_bundle(
            self.cycle.bundles, Bundle(kind, gang.name, self.pool.name, steps, trial.evictions, trial.message)
        )
        own_moves = (move.placed and move.gang is gang for move in moves)
        if gang.name in reserved and gang.pod_count == sum(own_moves):
            self.cycle.reserved_only.add(gang.name)
        self._new_placements.update((id(move.pod), move) for move in moves if move.placed)
        self.cycle.rejections.pop(gang.name, None)
        self.served.add(gang.name)
        self._block_stopping_indices(moves)
        if any(not move.placed for move in moves):
            if any(move.gang is not gang for move in moves):
                self.cycle.excluded.add(gang.name)
            self.cycle.excluded.update(move.gang.name for move in moves if move.placed)
        for eviction in trial.evictions:
            if eviction.whole:
                self.cycle.evicted.add(eviction.workload)
            elif eviction.kind is Kind.SHRINK:
                self.cycle.scaled_down.add(eviction.workload)

    def _block_stopping_indices(self, moves: Sequence[Move]) -> None:
        for _, part, pod, _, placed, _ in moves:
            is_stopping = not placed and pod.state is not PodState.RESERVED
            if is_stopping and pod.index not in part.live and pod.index not in part.used:
                part.used.add(pod.index)
                self._blocked_indices.append((part, pod.index))

    def start_reserved_pods(self, gang: Gang) -> None:
        """Add to the plan a bundle that starts the gang's reserved pods."""
        places = tuple(
            Place(gang.name, pod.role, pod.index, pod.node, pod.devices, pod.milli)
            for part in gang.parts
            for pod in part.pods_in_order
            if pod.state is PodState.RESERVED
        )
        self.cycle.rejections.pop(gang.name, None)
        self.cycle.reserved_only.discard(gang.name)
        self.cycle.started_reservations.add(gang.name)
        append_bundle(
            self.cycle.bundles,
            Bundle(
                Kind.START, gang.name, self.pool.name, places, message="the reserved capacity is free now"
            ),
        )

    def is_newly_placed(self, pod: Pod) -> bool:
        """Return whether the pod was placed in this cycle."""
        return id(pod) in self._new_placements

    def _replace_placements(self, withdrawn_ids: AbstractSet[int], moves: Sequence[Move]) -> list[Move]:
        """Withdraw or relocate pods placed earlier in this cycle, and return the remaining moves."""
        withdrawn = [self._new_placements.pop(pod) for pod in sorted(withdrawn_ids)]
        keys = {move_key(move) for move in withdrawn}
        replacements = {move_key(move): move for move in moves if move.placed and move_key(move) in keys}
        self.served.difference_update(move.gang.name for move in withdrawn if not move.gang.has_pods)
        for move in withdrawn:
            if move.gang.group is not None:
                move.gang.group.at = 0
        self._new_placements.update((id(move.pod), move) for move in replacements.values())
        reserved_only = self._mark_reserved_only(replacements.values())
        self.cycle.bundles = rewrite_bundles(self.cycle.bundles, keys, replacements, reserved_only)
        return [
            move for move in moves if id(move.pod) not in withdrawn_ids and move_key(move) not in replacements
        ]

    def _mark_reserved_only(self, moves: Iterable[Move]) -> set[str]:
        """Mark the gangs whose relocated pods can no longer start in this cycle. Return their names."""
        reserved_only = {
            move.gang.name for move in moves if not move.starts_now and self.starts_entire_gang(move.gang)
        }
        self.cycle.reserved_only |= reserved_only
        return reserved_only

    def newly_placed_gangs(self) -> Iterable[Gang]:
        """Return the gangs with at least one pod that was placed in this cycle."""
        return {move.gang: None for move in self._new_placements.values()}

    def starts_entire_gang(self, gang: Gang) -> bool:
        """Return whether the entire gang starts in this cycle."""
        return gang.name not in self.cycle.reserved_only and all(
            self.is_newly_placed(pod) for part in gang.parts for pod in part.live.values()
        )

    def pending_reasons(self, gang: Gang) -> Mapping[Reason, Numbers]:
        """Return the gang's pending reasons, including those of its group."""
        own = self.cycle.rejections.get(gang.name, {})
        return own if gang.group is None else {**gang.group.reasons, **own}

    def add_reason(self, gang: Gang, reason: Reason, numbers: Numbers) -> None:
        """Record a reason why the gang and its group are pending."""
        if gang.group is None:
            self.add_gang_reason(gang, reason, numbers)
            return
        result = gang.group.reasons
        if reason is Reason.NO_RECLAIMABLE_RESOURCES and result.get(reason, numbers) is not numbers:
            numbers = max(result[reason], numbers, key=policy_rejection_sort_key)
        result[reason] = numbers

    def add_gang_reason(self, gang: Gang, reason: Reason, numbers: Numbers) -> None:
        self.cycle.rejections.setdefault(gang.name, {})[reason] = numbers
