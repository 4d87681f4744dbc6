"""Here we carry a plan out on a scenario and let time pass: the cluster of a simulation."""

from collections import defaultdict
from dataclasses import replace

from berth.core.amounts import MILLI, Amounts
from scheduler.engine.backoff import backoff_seconds
from scheduler.engine.gang import roles_of
from scheduler.engine.model import Node, NodeState, Pod, PodState, Snapshot, Workload
from scheduler.engine.plan import Bundle, Evict, Kind, Place, Plan
from scheduler.engine.scenario.gangs import ALIVE, HOLDING, STANDING, has, is_finished, is_whole

COUNTED = (Kind.RECLAIM, Kind.PREEMPT)  # giving way like this counts as a preemption and earns a backoff


class World:
    """What is where, now. Workloads are frozen values that are replaced."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self.fixed = snapshot
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.workloads = {workload.name: workload for workload in snapshot.workloads}
        for promise in snapshot.reservations:
            if promise.expires is None or promise.expires > self.now:
                self._put(
                    promise.workload,
                    Pod(promise.role, promise.index, promise.node, promise.devices, promise.milli,
                        PodState.RESERVED, self.now),
                )  # fmt: skip
        self._mark_stale()

    def snapshot(self) -> Snapshot:
        return replace(
            self.fixed,
            now=self.now,
            nodes=tuple(self.nodes.values()),
            workloads=tuple(self.workloads.values()),
            reservations=(),
        )

    def carry_out(self, plan: Plan) -> None:
        for bundle in plan.bundles:
            placed_again = {step.workload for step in bundle.steps if isinstance(step, Place)}
            for step in bundle.steps:
                if isinstance(step, Evict):
                    self._stop(step)
                else:
                    self._place(step)
            self._send_back(bundle, placed_again)
        self._mark_stale()

    def passes(self, seconds: int) -> None:
        """What was stopping has stopped, what has run its time has ended, what was promised starts."""
        self.now += seconds
        for node in self.nodes.values():
            if node.state is NodeState.BOOTING and node.ready_at is not None and node.ready_at <= self.now:
                self.nodes[node.name] = replace(node, state=NodeState.READY, ready_at=None)
        for workload in self.workloads.values():
            if workload.pods:
                self.workloads[workload.name] = self._ended(_settled(workload))
        self._start_promised()
        self._mark_stale()

    @property
    def is_settled(self) -> bool:
        """Nothing is on its way, and nothing is known to happen later."""
        return not any(
            has(workload, (PodState.STOPPING, PodState.STARTING, PodState.RESERVED))
            or (workload.runtime_seconds is not None and has(workload, STANDING))
            or (workload.backoff_until is not None and workload.backoff_until > self.now)
            for workload in self.workloads.values()
        )

    # -- carrying out

    def _stop(self, step: Evict) -> None:
        """What was only promised is given up; what runs is asked to stop."""
        workload = self.workloads[step.workload]
        pods = []
        for pod in workload.pods:
            if (pod.role, pod.index) == (step.role, step.index) and pod.state in ALIVE:
                if pod.state is not PodState.RESERVED:
                    pods.append(replace(pod, state=PodState.STOPPING))
            else:
                pods.append(pod)
        self.workloads[step.workload] = replace(workload, pods=tuple(pods))

    def _place(self, step: Place) -> None:
        state = PodState.RESERVED if step.reserved else PodState.RUNNING
        workload = self.workloads[step.workload]
        if not step.reserved and not has(workload, STANDING):
            self.workloads[step.workload] = replace(workload, started=self.now, backoff_until=None)
        self._put(
            step.workload, Pod(step.role, step.index, step.node, step.devices, step.milli, state, self.now)
        )

    def _put(self, name: str, pod: Pod) -> None:
        workload = self.workloads[name]
        others = (
            other
            for other in workload.pods
            if (other.role, other.index) != (pod.role, pod.index) or other.state is not PodState.RESERVED
        )
        self.workloads[name] = replace(workload, pods=(*others, pod))

    def _send_back(self, bundle: Bundle, placed_again: set[str]) -> None:
        for eviction in bundle.evictions:
            workload = self.workloads[eviction.workload]
            if not eviction.whole or workload.name in placed_again:
                continue
            workload = replace(workload, started=None, stale_since=None, last_checkpoint=None)
            if eviction.kind in COUNTED and eviction.earns_backoff:
                times = workload.preemptions + 1
                until = self.now + backoff_seconds(times)
                workload = replace(workload, preemptions=times, backoff_until=until)
            self.workloads[workload.name] = workload

    # -- time

    def _ended(self, workload: Workload) -> Workload:
        if workload.runtime_seconds is None or workload.started is None or not has(workload, STANDING):
            return workload
        if self.now - workload.started < workload.runtime_seconds:
            return workload
        pods = tuple(
            replace(p, state=PodState.COMPLETED) if p.state in STANDING else p for p in workload.pods
        )
        pods = tuple(pod for pod in pods if pod.state is not PodState.RESERVED)
        return replace(workload, pods=pods)

    def _start_promised(self) -> None:
        waiting = [w for w in self.workloads.values() if has(w, (PodState.RESERVED,))]
        if not waiting:
            return
        rooms = self._rooms()
        for workload in sorted(waiting, key=lambda workload: (workload.submitted, workload.name)):
            promised = [pod for pod in workload.pods if pod.state is PodState.RESERVED]
            if is_whole(workload, STANDING):
                started = [pod for pod in promised if self._all_fit(workload, [pod], rooms)]
            else:  # a gang starts whole
                started = promised if self._all_fit(workload, promised, rooms) else []
            if started:
                self._start(workload, started)

    def _start(self, workload: Workload, started: list[Pod]) -> None:
        pods = tuple(
            replace(pod, state=PodState.RUNNING, started=self.now) if pod in started else pod
            for pod in workload.pods
        )
        fresh = not has(workload, STANDING)
        self.workloads[workload.name] = replace(
            workload, pods=pods, started=self.now if fresh else workload.started, backoff_until=None
        )

    def _rooms(self) -> dict[str, "Room"]:
        rooms = {node.name: Room(node) for node in self.nodes.values()}
        for workload in self.workloads.values():
            if workload.pods:
                amounts = {role.name: role.request.amounts for role in roles_of(workload.tree)}
                for pod in workload.pods:
                    if pod.state in HOLDING and pod.node in rooms:
                        rooms[pod.node].take(pod, amounts[pod.role])
        return rooms

    def _all_fit(self, workload: Workload, pods: list[Pod], rooms: dict[str, "Room"]) -> bool:
        amounts = {role.name: role.request.amounts for role in roles_of(workload.tree)}
        taken: list[Pod] = []
        for pod in pods:
            room = rooms.get(pod.node)
            if room is None or not room.fits(pod, amounts[pod.role]):
                for done in taken:
                    rooms[done.node].take(done, amounts[done.role], -1)
                return False
            room.take(pod, amounts[pod.role])
            taken.append(pod)
        return True

    def _mark_stale(self) -> None:
        """A gang that stands below its minimum has a grace, counted from when it fell there."""
        for workload in self.workloads.values():
            broken = has(workload, STANDING) and not is_whole(workload) and not is_finished(workload)
            if broken and workload.stale_since is None:
                self.workloads[workload.name] = replace(workload, stale_since=self.now)
            elif not broken and workload.stale_since is not None:
                self.workloads[workload.name] = replace(workload, stale_since=None)


class Room:
    """What one node has left."""

    def __init__(self, node: Node) -> None:
        self.ready = node.state in (NodeState.READY, NodeState.CORDONED)
        self.devices = defaultdict(int, dict.fromkeys(range(node.gpus), MILLI))
        self.cpu, self.memory_mib, self.pods = node.cpu, node.memory_mib, node.max_pods

    def fits(self, pod: Pod, amounts: Amounts) -> bool:
        return (
            self.ready
            and all(self.devices[device] >= pod.milli for device in pod.devices)
            and self.cpu >= amounts.cpu
            and self.memory_mib >= amounts.memory_mib
            and self.pods > 0
        )

    def take(self, pod: Pod, amounts: Amounts, sign: int = 1) -> None:
        for device in pod.devices:
            self.devices[device] -= sign * pod.milli
        self.cpu -= sign * amounts.cpu
        self.memory_mib -= sign * amounts.memory_mib
        self.pods -= sign


def _settled(workload: Workload) -> Workload:
    if not has(workload, (PodState.STOPPING, PodState.STARTING)):
        return workload
    pods = tuple(
        replace(pod, state=PodState.RUNNING) if pod.state is PodState.STARTING else pod
        for pod in workload.pods
        if pod.state is not PodState.STOPPING
    )
    return replace(workload, pods=pods)
