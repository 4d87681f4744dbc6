"""Apply plans to the simulated cluster and advance its clock."""

from collections.abc import Iterable
from dataclasses import replace
from heapq import heappop, heappush

from scheduler.engine.backoff import eviction_backoff_seconds
from scheduler.engine.model import NodeState, Pod, PodState, Snapshot, Workload
from scheduler.engine.plan import Bundle, Evict, Kind, Place, Plan
from scheduler.simulator.checkpoints import Checkpoints
from scheduler.simulator.gangs import (
    LIVE_STATES,
    RUNNING_STATES,
    has_pod_in,
    is_degraded,
    is_finished,
    meets_minimum,
)
from scheduler.simulator.node_room import allocate_all, free_resources_by_node

PREEMPTION_KINDS = (Kind.RECLAIM, Kind.PREEMPT)  # evictions that count as preemptions and cause a backoff
TRANSITION_STATES = (PodState.STOPPING, PodState.STARTING)


class SimulatedCluster:
    """Simulated cluster. Workloads are frozen values that are replaced on change."""

    def __init__(self, snapshot: Snapshot, stop_seconds: int = 0, checkpoint: int | None = None) -> None:
        """Set up the cluster.

        Runs save a checkpoint every `checkpoint` seconds, or never if `checkpoint` is None.
        """
        self.now, self.initial, self.stop_seconds = snapshot.now, snapshot, stop_seconds
        self._checkpoints = Checkpoints(checkpoint)
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.workloads: dict[str, Workload] = {}
        self.changed_workloads: set[str] = set()  # workloads changed since the caller last cleared the set
        self._unchecked: set[str] = set()  # workloads changed since the last check for stale gangs
        self._transition_ends: dict[str, int] = {}  # times at which pods finish starting or stopping
        self._reserved: set[str] = set()
        self._run_ends: list[tuple[int, str]] = []  # times at which runs end unless they are stopped earlier
        self._booting = sorted(
            (node.ready_at, node.name)
            for node in snapshot.nodes
            if node.state is NodeState.BOOTING and node.ready_at is not None
        )
        self._has_changed = True  # whether the state has changed since reservations were last checked
        for workload in snapshot.workloads:
            self._set_workload(workload)
        for reservation in snapshot.reservations:
            if reservation.expires is None or reservation.expires > self.now:
                self._set_pod(
                    reservation.workload,
                    Pod(
                        reservation.role,
                        reservation.index,
                        reservation.node,
                        reservation.devices,
                        reservation.milli,
                        PodState.RESERVED,
                        self.now,
                    ),
                )
        self._drop_invalid_reservations()
        self._mark_stale()

    def snapshot(self) -> Snapshot:
        return replace(
            self.initial,
            now=self.now,
            nodes=tuple(self.nodes.values()),
            workloads=tuple(self.workloads.values()),
            reservations=(),
        )

    def add_workload(self, workload: Workload) -> None:
        self._set_workload(workload)

    def remove_workload(self, name: str) -> None:
        """Remove a finished workload that no other workload depends on."""
        del self.workloads[name]
        self._unchecked.discard(name)
        self._reserved.discard(name)
        self._transition_ends.pop(name, None)

    def apply_plan(self, plan: Plan) -> None:
        for bundle in plan.bundles:
            placed_again = {step.workload for step in bundle.steps if isinstance(step, Place)}
            for step in bundle.steps:
                if isinstance(step, Evict):
                    self._apply_eviction(step)
                else:
                    self._apply_placement(step)
            self._requeue(bundle, placed_again)
        self._mark_stale()

    def advance(self, seconds: int) -> None:
        """Advance the clock.

        Apply the starts, stops and run ends that are due, and start pods with reservations.
        """
        self.now += seconds
        self._finish_booting()
        for name in [name for name, until in self._transition_ends.items() if until <= self.now]:
            self._set_workload(_finish_transitions(self.workloads[name]))
        while self._run_ends and self._run_ends[0][0] <= self.now:
            _, name = heappop(self._run_ends)
            if name in self.workloads:
                self._set_workload(self._complete_if_due(self.workloads[name]))
        self._start_reserved_workloads()
        self._checkpoints.record_until(self.workloads, self.now)
        self._mark_stale()

    def next_change(self) -> int | None:
        """Return the time of the next change, or None if no change is coming.

        If a run was stopped, the time may be too early.
        """
        times = [ready_at for ready_at, _ in self._booting[:1]]
        times += [max(time, self.now + 1) for time in self._transition_ends.values()]
        if self._run_ends:
            times.append(self._run_ends[0][0])
        return min(times, default=None)

    @property
    def is_settled(self) -> bool:
        """Whether no pod is starting, stopping or reserved, and no run or backoff will end."""
        return not any(
            has_pod_in(workload, (*TRANSITION_STATES, PodState.RESERVED))
            or (workload.runtime_seconds is not None and has_pod_in(workload, RUNNING_STATES))
            or (workload.backoff_until is not None and workload.backoff_until > self.now)
            for workload in self.workloads.values()
        )

    def _set_workload(self, workload: Workload) -> None:
        """Replace a workload. All changes must use this method, so that later checks detect them."""
        name = workload.name
        self.workloads[name] = workload
        self._has_changed = True
        self.changed_workloads.add(name)
        self._unchecked.add(name)
        states = {pod.state for pod in workload.pods}
        if states.isdisjoint(TRANSITION_STATES):
            self._transition_ends.pop(name, None)
        else:
            self._transition_ends.setdefault(name, self.now + self.stop_seconds)
        if PodState.RESERVED in states:
            self._reserved.add(name)
        else:
            self._reserved.discard(name)
        self._checkpoints.schedule_checkpoints(workload)
        runtime = _actual_runtime(workload)
        if runtime is not None and workload.started is not None and not states.isdisjoint(RUNNING_STATES):
            heappush(self._run_ends, (workload.started + runtime, name))

    def _drop_invalid_reservations(self) -> None:
        """Drop reservations on nodes that accept no new pods."""
        closed = {
            node.name
            for node in self.nodes.values()
            if node.state in (NodeState.CORDONED, NodeState.DRAINING)
        }
        for name in tuple(self._reserved) if closed else ():
            pods = self.workloads[name].pods
            remaining = tuple(p for p in pods if p.state is not PodState.RESERVED or p.node not in closed)
            if remaining != pods:
                self._set_workload(replace(self.workloads[name], pods=remaining))

    def _apply_eviction(self, step: Evict) -> None:
        """Stop a running pod, or cancel the reservation if the pod has not started."""
        workload = self.workloads[step.workload]
        pods = []
        for pod in workload.pods:
            if (pod.role, pod.index) == (step.role, step.index) and pod.state in LIVE_STATES:
                if pod.state is not PodState.RESERVED:
                    pods.append(replace(pod, state=PodState.STOPPING))
            else:
                pods.append(pod)
        left = replace(workload, pods=tuple(pods))
        stopped = has_pod_in(workload, RUNNING_STATES) and not has_pod_in(left, RUNNING_STATES)
        self._set_workload(self._checkpoints.subtract_saved_work(left) if stopped else left)

    def _apply_placement(self, step: Place) -> None:
        state = PodState.RESERVED if step.reserved else PodState.RUNNING
        workload = self.workloads[step.workload]
        if not step.reserved and not has_pod_in(workload, RUNNING_STATES):
            self.workloads[step.workload] = replace(workload, started=self.now, backoff_until=None)
        self._set_pod(
            step.workload, Pod(step.role, step.index, step.node, step.devices, step.milli, state, self.now)
        )

    def _set_pod(self, name: str, pod: Pod) -> None:
        workload = self.workloads[name]
        others = (
            other
            for other in workload.pods
            if (other.role, other.index) != (pod.role, pod.index) or other.state is not PodState.RESERVED
        )
        self._set_workload(replace(workload, pods=(*others, pod)))

    def _requeue(self, bundle: Bundle, placed_again: set[str]) -> None:
        for eviction in bundle.evictions:
            workload = self.workloads[eviction.workload]
            if not eviction.whole or workload.name in placed_again:
                continue
            ran = 0 if workload.started is None else self.now - workload.started
            workload = replace(workload, started=None, stale_since=None, last_checkpoint=None)
            if eviction.kind in PREEMPTION_KINDS and eviction.earns_backoff:
                times = workload.preemptions + 1
                until = self.now + eviction_backoff_seconds(times, ran)
                workload = replace(workload, preemptions=times, backoff_until=until)
            self._set_workload(workload)

    def _complete_if_due(self, workload: Workload) -> Workload:
        runtime = _actual_runtime(workload)
        if runtime is None or workload.started is None or not has_pod_in(workload, RUNNING_STATES):
            return workload
        if self.now - workload.started < runtime:
            return workload
        pods = tuple(
            replace(p, state=PodState.COMPLETED) if p.state in RUNNING_STATES else p for p in workload.pods
        )
        pods = tuple(pod for pod in pods if pod.state is not PodState.RESERVED)
        return replace(workload, pods=pods)

    def _finish_booting(self) -> None:
        while self._booting and self._booting[0][0] <= self.now:
            _, name = self._booting.pop(0)
            self.nodes[name] = replace(self.nodes[name], state=NodeState.READY, ready_at=None)
            self._has_changed = True

    def _start_reserved_workloads(self) -> None:
        if not self._reserved or not self._has_changed:
            return
        self._has_changed = False
        reserved_workloads = [self.workloads[name] for name in self._reserved]
        free_resources = free_resources_by_node(self.nodes.values(), self.workloads.values())
        for workload in sorted(reserved_workloads, key=lambda workload: (workload.submitted, workload.name)):
            reserved = [pod for pod in workload.pods if pod.state is PodState.RESERVED]
            if meets_minimum(workload, RUNNING_STATES):
                started = [pod for pod in reserved if allocate_all(workload, [pod], free_resources)]
            else:  # a gang starts completely or not at all
                started = reserved if allocate_all(workload, reserved, free_resources) else []
            if started:
                self._start_pods(workload, started)

    def _start_pods(self, workload: Workload, started: Iterable[Pod]) -> None:
        starting = list(started)
        pods = tuple(
            replace(pod, state=PodState.RUNNING, started=self.now) if pod in starting else pod
            for pod in workload.pods
        )
        since = workload.started if has_pod_in(workload, RUNNING_STATES) else self.now
        self._set_workload(replace(workload, pods=pods, started=since, backoff_until=None))

    def _mark_stale(self) -> None:
        for name in sorted(self._unchecked):
            workload = self.workloads[name]
            broken = self._is_below_minimum(workload) and not is_finished(workload)
            if broken and workload.stale_since is None:
                self.workloads[name] = replace(workload, stale_since=self.now)
            elif not broken and workload.stale_since is not None:
                self.workloads[name] = replace(workload, stale_since=None)
        self._unchecked.clear()

    def _is_below_minimum(self, workload: Workload) -> bool:
        booting = NodeState.BOOTING
        pods = [p for p in workload.pods if not p.node or self.nodes[p.node].state is not booting]
        return is_degraded(replace(workload, pods=tuple(pods)))


def _actual_runtime(workload: Workload) -> int | None:
    """Return the actual runtime, limited by `max_runtime`, or None if the workload runs until stopped."""
    if workload.runtime_seconds is None or workload.max_runtime is None:
        return workload.runtime_seconds
    return min(workload.runtime_seconds, workload.max_runtime)


def _finish_transitions(workload: Workload) -> Workload:
    if not has_pod_in(workload, (PodState.STOPPING, PodState.STARTING)):
        return workload
    pods = tuple(
        replace(pod, state=PodState.RUNNING) if pod.state is PodState.STARTING else pod
        for pod in workload.pods
        if pod.state is not PodState.STOPPING
    )
    return replace(workload, pods=pods)
