"""Replay a trace event by event, with a cycle after each change."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from scheduler.engine.actions.backfill import current_hold_or_pause
from scheduler.engine.decide import decide_with_layout
from scheduler.engine.expected_runtime import LAST_RUNS, expected_runtime
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import Pool, Workload
from scheduler.engine.plan import Plan
from scheduler.simulator.gangs import RUNNING_STATES, has_pod_in, is_finished
from scheduler.simulator.replay.records import Records
from scheduler.simulator.replay.trace import Trace
from scheduler.simulator.simulation import SimulatedCluster
from scheduler.simulator.usage import UsageMeter

STOP_SECONDS = 10  # seconds until the GPUs of a stopping pod are free
HEARTBEAT = 60  # seconds between cycles if only the passage of time can change decisions


@dataclass(frozen=True, slots=True)
class Progress:
    now: int
    arrived: int
    ended: int
    cycles: int


class ReplayRun:
    def __init__(
        self,
        trace: Trace,
        records: Records,
        stop_seconds: int = STOP_SECONDS,
        min_cycle_seconds: int = 0,
        checkpoint: int | None = None,
    ) -> None:
        self.trace, self.records = trace, records
        self.min_cycle_seconds = min_cycle_seconds  # minimum time between two cycles
        self.next_cycle = trace.cluster.now
        self.needs_cycle = False  # True if the state has changed since the last cycle
        self.layout: Layout | None = None  # layout passed to the next cycle
        self.world, self.meter = (
            SimulatedCluster(trace.cluster, stop_seconds, checkpoint),
            UsageMeter(trace.cluster),
        )
        self.heartbeat = HEARTBEAT if any(map(_does_pool_depend_on_time, trace.cluster.pools)) else None
        self.pending: set[str] = set()
        self.backoffs: list[int] = []
        self.release_at: int | None = None  # time at which held nodes are released for other workloads
        # Queues with their expected runtimes. Updated whenever a workload ends.
        self.queues = trace.cluster.queues
        self.runtimes = {queue.name: deque[int](maxlen=LAST_RUNS) for queue in self.queues}
        self.arrived = self.ended = self.cycles = 0
        self.plan = Plan()

    def play(self) -> Iterator[Progress]:
        """Run until all workloads have ended or no further change is possible."""
        while (at := self._next_event()) is not None:
            self._advance_to(at)
            self._add_arrivals()
            changed = bool(self.world.changed_workloads)
            self._record_changes()
            self.needs_cycle = bool(self.pending) and (
                self._expire_backoffs() or changed or self.needs_cycle or self._should_release_nodes()
            )
            if self.needs_cycle and self.world.now >= self.next_cycle:
                self._run_cycle()
            yield Progress(self.world.now, self.arrived, self.ended, self.cycles)

    def _next_event(self) -> int | None:
        times = []
        if self.arrived < len(self.trace.arrivals):
            times.append(self.trace.arrivals[self.arrived].submitted)
        if (change := self.world.next_change()) is not None:
            times.append(change)
        if self.needs_cycle:
            times.append(self.next_cycle)
        if self.pending:
            times += self.backoffs[:1]
            if self.release_at is not None:
                times.append(self.release_at)
            if self.heartbeat is not None and times:
                times.append(self.world.now + self.heartbeat)
        return max(min(times), self.world.now) if times else None

    def _advance_to(self, at: int) -> None:
        if self.meter.histories:
            self.meter.advance(self.world.snapshot(), self.plan, at)
        self.world.advance(at - self.world.now)

    def _add_arrivals(self) -> None:
        arrivals = self.trace.arrivals
        while self.arrived < len(arrivals) and arrivals[self.arrived].submitted <= self.world.now:
            self.world.add_workload(arrivals[self.arrived])
            self.arrived += 1

    def _expire_backoffs(self) -> bool:
        """Remove the backoffs that have ended, and return whether a cycle is due."""
        needs_cycle = self.heartbeat is not None
        while self.backoffs and self.backoffs[0] <= self.world.now:
            heappop(self.backoffs)
            needs_cycle = True
        return needs_cycle

    def _should_release_nodes(self) -> bool:
        return self.release_at is not None and self.release_at <= self.world.now

    def _run_cycle(self) -> None:
        queues = self.meter.with_usage(self.queues) if self.meter.histories else self.queues
        snapshot = replace(self.world.snapshot(), queues=queues)
        self.plan, self.layout = decide_with_layout(snapshot, self.layout)
        self.cycles += 1
        self.needs_cycle, self.next_cycle = False, self.world.now + self.min_cycle_seconds
        self.release_at = self._first_hold_end(self.layout)
        self.world.apply_plan(self.plan)
        self.records.record_plan(self.world.now, self.plan)
        self._record_changes()

    def _first_hold_end(self, layout: Layout) -> int | None:
        ends = []
        for board in layout.boards.values():
            hold, after = board.cycle.backfill_hold, board.pool.reservation_after
            if hold is not None and after is not None:
                earliest = self.world.workloads[hold.name].submitted + after
                end, holds = current_hold_or_pause(self.world.now - earliest)
                ends += [earliest + end] if holds else []
        return min(ends, default=None)

    def _record_runtime(self, workload: Workload) -> None:
        """Record a completed workload's runtime, and update its project's expected runtime."""
        if workload.started is None:
            return
        self.runtimes[workload.project].append(self.world.now - workload.started)
        expected = expected_runtime(self.runtimes[workload.project])
        self.queues = tuple(
            replace(queue, expected_runtime=expected)
            if queue.name == workload.project and queue.expected_runtime != expected
            else queue
            for queue in self.queues
        )

    def _record_changes(self) -> None:
        world = self.world
        for name in sorted(world.changed_workloads):
            workload = world.workloads[name]
            has_ended = is_finished(workload)
            self.records.record_workload(world.now, workload, has_ended)
            if has_ended:
                self.ended += 1
                self._record_runtime(workload)
                self.pending.discard(name)
                world.remove_workload(name)
            elif has_pod_in(workload, RUNNING_STATES):
                self.pending.discard(name)
            else:
                self.pending.add(name)
                if workload.backoff_until is not None and workload.backoff_until > world.now:
                    heappush(self.backoffs, workload.backoff_until)
        world.changed_workloads.clear()


def _does_pool_depend_on_time(pool: Pool) -> bool:
    return (
        pool.fair_share.time_based
        or pool.reclaim_min_runtime > 0
        or pool.preempt_min_runtime > 0
        or pool.preemption_delay > 0
    )
