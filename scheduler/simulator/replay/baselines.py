"""First-in, first-out policies that serve as baselines in trace replays."""

from collections.abc import Hashable, Iterator
from dataclasses import replace
from heapq import heappop, heappush

from berth.core.values.amounts import MILLI
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.board.matching import matches
from scheduler.engine.model import Node, Pod, PodState, Role, Workload
from scheduler.simulator.replay.player import Progress
from scheduler.simulator.replay.records import Records
from scheduler.simulator.replay.trace import Trace

Assignment = tuple[int, Role, tuple[int, ...]]  # node index, role and devices of a placed replica


class SimulatedNode:
    """Free resources of one node in a baseline policy."""

    def __init__(self, node: Node) -> None:
        self.node, self.free = node, [MILLI] * node.gpus
        self.cpu, self.memory_mib, self.unused_devices = node.cpu, node.memory_mib, node.gpus

    def fits(self, role: Role) -> bool:
        request = role.request
        if request.gpu >= MILLI and self.unused_devices < request.devices:
            return False
        if request.cpu > self.cpu or request.memory_mib > self.memory_mib:
            return False
        return len(self.devices(role)) == request.devices and matches(role, self.node)

    def devices(self, role: Role) -> tuple[int, ...]:
        """Return the fullest devices that still have room for the request."""
        request = role.request
        candidates = sorted((free, device) for device, free in enumerate(self.free) if free >= request.gpu)
        return tuple(device for _, device in candidates[: request.devices])

    def allocate(self, role: Role, devices: tuple[int, ...], sign: int = 1) -> None:
        request = role.request
        for device in devices:
            self.free[device] -= sign * request.gpu
        self.unused_devices = sum(free == MILLI for free in self.free)
        self.cpu -= sign * request.cpu
        self.memory_mib -= sign * request.memory_mib


class FifoPolicy:
    """Policy that starts jobs in order of arrival. With `skip`, jobs may overtake a job that does not fit."""

    def __init__(self, trace: Trace, records: Records, skip: bool) -> None:
        self.trace, self.records, self.skip = trace, records, skip
        self.machines = [SimulatedNode(node) for node in trace.cluster.nodes]
        self.queue: list[Workload] = []
        self.ends: list[tuple[int, str, Workload, list[Assignment]]] = []
        self.arrived = self.ended = self.cycles = 0

    def play(self) -> Iterator[Progress]:
        arrivals = self.trace.arrivals
        while self.arrived < len(arrivals) or self.ends:
            times = [arrivals[self.arrived].submitted] if self.arrived < len(arrivals) else []
            now = min([*times, *(end[0] for end in self.ends[:1])])
            while self.ends and self.ends[0][0] <= now:
                self._end_next_workload(now)
            while self.arrived < len(arrivals) and arrivals[self.arrived].submitted <= now:
                self.queue.append(arrivals[self.arrived])
                self.records.record_workload(now, arrivals[self.arrived], has_ended=False)
                self.arrived += 1
            self._start(now)
            self.cycles += 1
            yield Progress(now, self.arrived, self.ended, self.cycles)

    def _end_next_workload(self, now: int) -> None:
        _, _, workload, assignments = heappop(self.ends)
        for i, role, devices in assignments:
            self.machines[i].allocate(role, devices, -1)
        self.records.record_workload(now, workload, has_ended=True)
        self.ended += 1

    def _start(self, now: int) -> None:
        rejected: set[Hashable] = set()
        still_queued = []
        for place, workload in enumerate(self.queue):
            if rejected and not self.skip:
                still_queued += self.queue[place:]
                break
            assignments = None if id(workload.tree) in rejected else self._place_replicas(workload)
            if assignments is None:
                rejected.add(id(workload.tree))
                still_queued.append(workload)
                continue
            pods = tuple(
                Pod(role.name, index, self.machines[i].node.name, devices, role.request.gpu,
                    PodState.RUNNING, now)
                for index, (i, role, devices) in enumerate(assignments)
            )  # fmt: skip
            heappush(self.ends, (now + (workload.runtime_seconds or 1), workload.name, workload, assignments))
            self.records.record_workload(now, replace(workload, pods=pods, started=now), has_ended=False)
        self.queue = still_queued

    def _place_replicas(self, workload: Workload) -> list[Assignment] | None:
        """Place each replica on the fullest node with room. Return None if any replica does not fit."""
        assignments: list[Assignment] = []
        for role in leaf_roles(workload.tree):
            for _ in range(role.min):
                candidates = [(m.unused_devices, i) for i, m in enumerate(self.machines) if m.fits(role)]
                if not candidates:
                    for i, placed, devices in assignments:
                        self.machines[i].allocate(placed, devices, -1)
                    return None
                i = min(candidates)[1]
                devices = self.machines[i].devices(role)
                self.machines[i].allocate(role, devices)
                assignments.append((i, role, devices))
        return assignments
