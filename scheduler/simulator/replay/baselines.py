"""First-in-first-out policies as baselines for trace replays."""

from collections.abc import Hashable, Iterator
from dataclasses import replace
from heapq import heappop, heappush

from berth.core.amounts import MILLI
from scheduler.engine.board.gang import roles_of
from scheduler.engine.board.matching import matches
from scheduler.engine.model import Node, Pod, PodState, Role, Workload
from scheduler.simulator.replay.player import Progress
from scheduler.simulator.replay.records import Records
from scheduler.simulator.replay.trace import Trace

Seat = tuple[int, Role, tuple[int, ...]]  # node, request, devices


class Machine:
    """Free resources of one node."""

    def __init__(self, node: Node) -> None:
        self.node, self.free = node, [MILLI] * node.gpus
        self.cpu, self.memory_mib, self.whole = node.cpu, node.memory_mib, node.gpus

    def fits(self, role: Role) -> bool:
        request = role.request
        if request.gpu >= MILLI and self.whole < request.devices:
            return False
        if request.cpu > self.cpu or request.memory_mib > self.memory_mib:
            return False
        return len(self.devices(role)) == request.devices and matches(role, self.node)

    def devices(self, role: Role) -> tuple[int, ...]:
        """Return the fullest devices that fit the request."""
        request = role.request
        able = sorted((free, device) for device, free in enumerate(self.free) if free >= request.gpu)
        return tuple(device for _, device in able[: request.devices])

    def take(self, role: Role, devices: tuple[int, ...], sign: int = 1) -> None:
        request = role.request
        for device in devices:
            self.free[device] -= sign * request.gpu
        self.whole = sum(free == MILLI for free in self.free)
        self.cpu -= sign * request.cpu
        self.memory_mib -= sign * request.memory_mib


class InOrder:
    """Starts jobs in order of arrival. With `skip`, later jobs may pass a job that does not fit."""

    def __init__(self, trace: Trace, records: Records, skip: bool) -> None:
        self.trace, self.records, self.skip = trace, records, skip
        self.machines = [Machine(node) for node in trace.cluster.nodes]
        self.queue: list[Workload] = []
        self.ends: list[tuple[int, str, Workload, list[Seat]]] = []
        self.arrived = self.ended = self.cycles = 0

    def play(self) -> Iterator[Progress]:
        arrivals = self.trace.arrivals
        while self.arrived < len(arrivals) or self.ends:
            times = [arrivals[self.arrived].submitted] if self.arrived < len(arrivals) else []
            now = min([*times, *(end[0] for end in self.ends[:1])])
            while self.ends and self.ends[0][0] <= now:
                self._end(now)
            while self.arrived < len(arrivals) and arrivals[self.arrived].submitted <= now:
                self.queue.append(arrivals[self.arrived])
                self.records.saw(now, arrivals[self.arrived], over=False)
                self.arrived += 1
            self._start(now)
            self.cycles += 1
            yield Progress(now, self.arrived, self.ended, self.cycles)

    def _end(self, now: int) -> None:
        _, _, workload, seats = heappop(self.ends)
        for i, role, devices in seats:
            self.machines[i].take(role, devices, -1)
        self.records.saw(now, workload, over=True)
        self.ended += 1

    def _start(self, now: int) -> None:
        refused: set[Hashable] = set()
        left = []
        for place, workload in enumerate(self.queue):
            if refused and not self.skip:
                left += self.queue[place:]
                break
            seats = None if id(workload.tree) in refused else self._seats(workload)
            if seats is None:
                refused.add(id(workload.tree))
                left.append(workload)
                continue
            pods = tuple(
                Pod(role.name, index, self.machines[i].node.name, devices, role.request.gpu,
                    PodState.RUNNING, now)
                for index, (i, role, devices) in enumerate(seats)
            )  # fmt: skip
            heappush(self.ends, (now + (workload.runtime_seconds or 1), workload.name, workload, seats))
            self.records.saw(now, replace(workload, pods=pods, started=now), over=False)
        self.queue = left

    def _seats(self, workload: Workload) -> list[Seat] | None:
        """Place each replica on the fullest node that fits it. Return None if the gang does not fit whole."""
        seats: list[Seat] = []
        for role in roles_of(workload.tree):
            for _ in range(role.min):
                able = [(m.whole, i) for i, m in enumerate(self.machines) if m.fits(role)]
                if not able:
                    for i, placed, devices in seats:
                        self.machines[i].take(placed, devices, -1)
                    return None
                i = min(able)[1]
                devices = self.machines[i].devices(role)
                self.machines[i].take(role, devices)
                seats.append((i, role, devices))
        return seats
