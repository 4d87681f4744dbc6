"""Checkpoints of running workloads in a simulation."""

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from scheduler.engine.model import Workload
from scheduler.simulator.gangs import RUNNING_STATES, has_pod_in


@dataclass(slots=True)
class Checkpoints:
    """Checkpoints that running workloads save every `interval` seconds, or never if `interval` is None."""

    interval: int | None = None
    _runs: dict[str, int] = field(default_factory=dict)  # start time of each workload's run
    # Time of the next checkpoint, workload, and start of its run.
    _next: list[tuple[int, str, int]] = field(default_factory=list)

    def schedule_checkpoints(self, workload: Workload) -> None:
        """If the workload has started a new run, schedule the run's checkpoints."""
        started = workload.started
        if self.interval is None or started is None or self._runs.get(workload.name) == started:
            return
        if has_pod_in(workload, RUNNING_STATES):
            self._runs[workload.name] = started
            heappush(self._next, (started + self.interval, workload.name, started))

    def record_until(self, workloads: dict[str, Workload], now: int) -> None:
        """Update `workloads` with checkpoints saved up to `now`. A new checkpoint does not trigger a
        cycle.
        """
        while self.interval is not None and self._next and self._next[0][0] <= now:
            _, name, started = heappop(self._next)
            workload = workloads.get(name)
            if workload is None or workload.started != started or not has_pod_in(workload, RUNNING_STATES):
                if self._runs.get(name) == started:
                    del self._runs[name]
                continue
            saved_at = now - (now - started) % self.interval
            workloads[name] = replace(workload, last_checkpoint=saved_at)
            heappush(self._next, (saved_at + self.interval, name, started))

    def subtract_saved_work(self, workload: Workload) -> Workload:
        """Subtract a stopped run's saved work from the workload's remaining runtime."""
        self._runs.pop(workload.name, None)
        saved_at, started, runtime = workload.last_checkpoint, workload.started, workload.runtime_seconds
        if self.interval is None or saved_at is None or started is None or runtime is None:
            return workload
        return replace(workload, runtime_seconds=runtime - max(0, saved_at - started), last_checkpoint=None)
