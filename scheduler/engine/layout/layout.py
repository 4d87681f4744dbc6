"""Build one board per pool from a snapshot, and set aside the workloads that cannot start."""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import remaining_preemption_delay
from scheduler.engine.board.gang import Gang, leaf_roles
from scheduler.engine.board.ledger import KINDS, fits_within
from scheduler.engine.explain.dependencies import dependency_numbers
from scheduler.engine.explain.feasible import permanent_obstacle
from scheduler.engine.layout.board_updates import by_name, enqueue, remove_gang, start_cycle
from scheduler.engine.layout.quota_groups import QuotaGroups
from scheduler.engine.layout.request_shapes import request_key
from scheduler.engine.layout.soundness import (
    overallocated_nodes,
    queues_without_parent,
    unmatched_reservations,
    validate_pods,
)
from scheduler.engine.model import NodeState, Pod, PodState, Reservation, Snapshot, Workload
from scheduler.engine.plan import Numbers, Reason

_ACTIVE_STATES = (PodState.RUNNING, PodState.STARTING)


class Layout:
    """Boards of a snapshot, keyed by pool name, with notes on inconsistent input."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._build_boards(snapshot)
        self.quota_groups = QuotaGroups(self.boards)
        for workload in snapshot.workloads:
            self.add(workload)
        self.quota_groups.start_cycle()
        for board in self.boards.values():
            start_cycle(board, snapshot.now)
            self.notes += overallocated_nodes(board.nodes)

    def _build_boards(self, snapshot: Snapshot) -> None:
        self.snapshot, self.now = snapshot, snapshot.now
        # Number of gangs by the pool's position in their list of pools; 0 is the first choice.
        self.choices: Counter[int] = Counter()
        self.with_dependencies: set[str] = set()  # workloads that depend on others
        self.time_dependent: set[str] = set()  # workloads whose eligibility changes with time
        self.notes: list[str] = []
        self.queues = {queue.name for queue in snapshot.queues}
        self.pool_by_node = {node.name: node.pool for node in snapshot.nodes}
        self.closed_nodes = {
            node.name for node in snapshot.nodes if node.state in (NodeState.CORDONED, NodeState.DRAINING)
        }
        self.served = served = set[str]()  # shared by all boards, because a workload starts in only one pool
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
            workload.name for workload in snapshot.workloads if workload.pods and is_finished(workload)
        }
        self.workload_names = {workload.name for workload in snapshot.workloads}
        self.notes += unmatched_reservations(snapshot.reservations, self.workload_names)
        self.notes += queues_without_parent(snapshot.queues)
        self.reserved = reservations_by_workload(snapshot)
        # Whether limits and quotas can ever admit a request, by request key.
        self._startable: dict[Hashable, bool] = {}

    def add(self, workload: Workload) -> None:
        if workload.pods and workload.name in self.finished:
            return
        if workload.project not in self.queues:
            self.notes.append(f"{workload.name}: there is no project {workload.project}")
            self._block_resources(workload.pods)
            return
        if workload.after:
            self.with_dependencies.add(workload.name)
        is_placed = workload.pods or workload.name in self.reserved
        by_pool = self._pods_by_pool(workload) if is_placed else {}
        pool_names = list(by_pool) or list(workload.pools)
        for pool in pool_names:
            board = self.boards.get(pool)
            if board is None:
                self.notes.append(f"{workload.name}: there is no pool {pool}")
                continue
            choice = pool_names.index(pool)
            self.choices[choice] += 1
            gang = board.add(workload, choice, by_pool.get(pool, ()))
            if gang.is_elastic:
                insort(board.elastic_gangs, gang, key=by_name)
            elif gang.is_complete:
                continue
            if any(pod.state is PodState.RESERVED for pod in gang.pods):
                insort(board.reserved_gangs, gang, key=by_name)
            self._count_and_enqueue(board, gang)

    @property
    def max_pool_choices(self) -> int:
        return max((choice + 1 for choice, count in self.choices.items() if count), default=1)

    def remove(self, name: str) -> None:
        """Remove a workload from all boards."""
        self.time_dependent.discard(name)
        self.with_dependencies.discard(name)
        for board in self.boards.values():
            if name in board.gangs:
                self.choices[board.gangs[name].choice] -= 1
                remove_gang(board, board.gangs[name])

    def _pods_by_pool(self, workload: Workload) -> Mapping[str, Sequence[Pod]]:
        pods: Sequence[Pod] = workload.pods
        roles = {role.name for role in leaf_roles(workload.tree)}
        if workload.name in self.reserved:
            pods = (*pods, *self._reserved_pods(workload))
        elif len(pods) == 1 and pods[0].state in _ACTIVE_STATES and pods[0].role in roles:
            pool = self.pool_by_node.get(pods[0].node)
            if pool is not None:
                return {pool: pods}  # the common case of a single valid pod
        sound, strange, notes = validate_pods(workload.name, tuple(pods), roles, self.pool_by_node)
        self.notes += notes
        self._block_resources(strange)
        by_pool: dict[str, list[Pod]] = {}
        for pod in sound:
            if pod.state is PodState.RESERVED and pod.node in self.closed_nodes:
                continue  # a reservation is void if its node accepts no new pods
            if pod.state is not PodState.COMPLETED:
                by_pool.setdefault(self.pool_by_node[pod.node], []).append(pod)
        completed = [pod for pod in sound if pod.state is PodState.COMPLETED]
        for placed in by_pool.values():
            placed.extend(completed)
        return by_pool if by_pool or not completed else {workload.pools[0]: completed}

    def _block_resources(self, pods: Iterable[Pod]) -> None:
        """Block the resources of pods that do not match their workload, except completed pods and
        reservations.
        """
        for pod in pods:
            board = self.boards.get(self.pool_by_node.get(pod.node, ""))
            if board is not None and pod.state not in (PodState.COMPLETED, PodState.RESERVED):
                board.nodes.block_devices(pod.node, pod.devices, pod.milli)

    def _reserved_pods(self, workload: Workload) -> list[Pod]:
        placed = {(pod.role, pod.index) for pod in workload.pods if pod.state is not PodState.STOPPING}
        return [
            Pod(p.role, p.index, p.node, p.devices, p.milli, PodState.RESERVED, self.now)
            for p in self.reserved[workload.name]
            if (p.role, p.index) not in placed
        ]

    def _count_and_enqueue(self, board: Board, gang: Gang) -> None:
        """Count the gang's request in its queues. Queue the gang if it may start in this pool."""
        reason, kind = self._ineligible_reason(gang), None
        if reason is not None and "seconds" in reason[1]:
            self.time_dependent.add(gang.name)
        if not gang.pod_count and (reason is None or reason[0] is Reason.BACKOFF):
            kind = _group_key(board, gang)
            if kind not in board.pending_groups:  # existing groups have already passed this check
                reason = permanent_obstacle(board, gang, kind[0]) or reason
        if reason is None or reason[0] is Reason.BACKOFF:
            self._count_request(gang)
        if gang.pod_count:
            meets_minimum = gang.meets_minimum
            reserved = any(pod.state is PodState.RESERVED for pod in gang.pods)
            too_many = any(part.replica_count > part.role.max for part in gang.parts)
            if gang.is_elastic or reserved or too_many or not meets_minimum:
                insort(board.incomplete_gangs, gang, key=by_name)
            if meets_minimum:
                return
        if reason is not None:
            board.ineligible[gang.name] = reason
            return
        enqueue(board, _group_key(board, gang) if kind is None else kind, gang)
        if remaining_preemption_delay(board, gang.workload):
            self.time_dependent.add(gang.name)

    def _ineligible_reason(self, gang: Gang) -> tuple[Reason, Numbers] | None:
        workload = gang.workload
        if workload.misconfigured:
            return Reason.MISCONFIGURED, {"why": workload.misconfigured}
        if workload.suspended:
            return Reason.SUSPENDED, {}
        if workload.after:
            unmet = [
                dependency
                for dependency in workload.after
                if dependency.workload in self.workload_names
                and (dependency.workload not in self.finished or dependency.state == "failed")
            ]
            if unmet:
                return Reason.DEPENDENCY_NOT_MET, dependency_numbers(unmet)
        if workload.awaits_code:
            return Reason.FETCHING_CODE, {"code": workload.awaits_code}
        if workload.pods and gang.is_stopping:
            return Reason.BACKOFF, {"why": "its previous pods have not stopped", "until": None}
        if workload.backoff_until is not None and workload.backoff_until > self.now and not gang.has_pods:
            return Reason.BACKOFF, {
                "until": workload.backoff_until,
                "seconds": workload.backoff_until - self.now,
                "preemptions": workload.preemptions,
                "restarts": workload.restarts,
                **({"refusal": workload.start_refusal} if workload.start_refusal else {}),
            }
        return None

    def _count_request(self, gang: Gang) -> None:
        """Add the gang's missing replicas to its queues' pending requests, if it can ever start."""
        more = [0, 0, 0]
        for part in gang.parts:
            missing = part.role.max - part.replica_count
            if missing > 0:
                for kind in KINDS:
                    more[kind] += missing * part.amounts[kind]
        if gang.non_preemptible:
            more = _amounts_within_quota(gang, more)
        if not any(more) or (not gang.pod_count and not self._may_ever_start(gang)):
            return
        gang.extra_request = more[0], more[1], more[2]
        for account in gang.account.path:
            for kind in KINDS:
                account.pending_request[kind] += more[kind]

    def _may_ever_start(self, gang: Gang) -> bool:
        kind = gang.account, gang.requested, gang.non_preemptible
        result = self._startable.get(kind)
        if result is None:
            result = self._startable[kind] = _fits_empty_queues(gang)
        return result


def _group_key(board: Board, gang: Gang) -> tuple[Hashable, ...]:
    """Return a key that gangs share if they are rejected for the same reason.

    Its first item is the request key.
    """
    workload = gang.workload
    ends = workload.max_runtime if board.pool.reservation_after is not None else None
    is_delayed = remaining_preemption_delay(board, workload) > 0
    key = request_key(board, gang)
    return key, gang.account, gang.choice, workload.priority, gang.non_preemptible, ends, is_delayed


def reservations_by_workload(snapshot: Snapshot) -> dict[str, list[Reservation]]:
    """Return the unexpired reservations, keyed by workload."""
    result: dict[str, list[Reservation]] = defaultdict(list)
    for reservation in snapshot.reservations:
        if reservation.expires is None or reservation.expires > snapshot.now:
            result[reservation.workload].append(reservation)
    return result


def is_finished(workload: Workload) -> bool:
    """Return whether all pods have completed, and each role has at least its minimum number of completed
    pods.
    """
    for pod in workload.pods:
        if pod.state is not PodState.COMPLETED:
            return False
    done: dict[str, int] = defaultdict(int)
    for pod in workload.pods:
        done[pod.role] += 1
    return all(done[role.name] >= role.min for role in leaf_roles(workload.tree))


def _amounts_within_quota(gang: Gang, more: Sequence[int]) -> list[int]:
    allocated = [sum(len(part.live) * part.amounts[kind] for part in gang.parts) for kind in KINDS]
    quota = [min(account.quota[kind] for account in gang.account.path) for kind in KINDS]
    return [max(0, min(more[kind], quota[kind] - allocated[kind])) for kind in KINDS]


def _fits_empty_queues(gang: Gang) -> bool:
    requested, nothing = gang.requested, (0, 0, 0)
    return all(
        fits_within(nothing, account.limit, requested)
        and (not gang.non_preemptible or fits_within(nothing, account.quota, requested))
        for account in gang.account.path
    )
