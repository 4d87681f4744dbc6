"""Records of every job in a replay."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from berth.core.values.amounts import MILLI
from scheduler.engine.model import Workload
from scheduler.engine.plan import Plan
from scheduler.simulator.gangs import RUNNING_STATES, has_pod_in
from scheduler.simulator.replay.trace import Trace, gpus_requested, total_gpu_quota

Curve = list[tuple[int, float]]  # step function as pairs of a second and the value from that second on


@dataclass(slots=True)
class JobRecord:
    """One job of the trace. Times are in seconds since the epoch."""

    name: str
    project: str
    gpus: float
    submitted: int
    first_start: int | None = None
    since: int | None = None  # start time of the current run
    pending_since: int | None = None
    ended: int | None = None
    pending_seconds: int = 0  # total pending time, including the time after evictions
    # Part of `pending_seconds` during which the job would have fit into its project's quota.
    pending_seconds_in_quota: float = 0.0
    stops: int = 0
    # The project's `seconds_with_free_gpus` for this job's size when the job became pending.
    clock_when_pending: float = 0.0


@dataclass(slots=True)
class ProjectAccount:
    """Statistics of one project: its allocation over time, and how long a job of each size would have fit
    into its quota.
    """

    quota: float | None
    gpus: float = 0.0  # currently allocated GPUs
    pending: int = 0
    sizes: list[float] = field(default_factory=list)
    # Number of seconds during which a job of each size would have fit.
    clocks: list[float] = field(default_factory=list)
    at: int = 0
    gpu_seconds: float = 0.0
    allocated: Curve = field(default_factory=list)

    def advance(self, now: int) -> None:
        seconds, self.at = now - self.at, now
        if seconds <= 0:
            return
        self.gpu_seconds += self.gpus * seconds
        left = None if self.quota is None else self.quota - self.gpus
        for place, size in enumerate(self.sizes):
            if left is not None and size > left:
                break
            self.clocks[place] += seconds

    def seconds_with_free_gpus(self, gpus: float) -> float:
        return self.clocks[bisect_left(self.sizes, gpus)]


class Records:
    """Records of all jobs in the trace, updated during the replay."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.jobs: dict[str, JobRecord] = {}
        self.evictions: dict[str, int] = defaultdict(int)  # number of workloads stopped or moved, by kind
        self.evictions_by_project: dict[str, int] = defaultdict(int)
        self.lost_gpu_seconds_by_project: dict[str, float] = defaultdict(float)
        # Times at which a workload became pending (+1) or stopped being pending (-1).
        self._queue_changes: list[tuple[int, int]] = []
        self.accounts = _accounts(trace)
        self._allocated_gpus: dict[str, float] = {}

    def record_plan(self, now: int, plan: Plan) -> None:
        del now
        for bundle in plan.bundles:
            for eviction in bundle.evictions:
                self.evictions[eviction.kind] += 1
                project = self.jobs[eviction.workload].project
                self.evictions_by_project[project] += 1
                self.lost_gpu_seconds_by_project[project] += eviction.lost_gpu_seconds

    def record_workload(self, now: int, workload: Workload, has_ended: bool) -> None:
        """Record the arrival, start, stop, scaling or end of a workload."""
        job = self.jobs.get(workload.name)
        if job is None:
            requested = gpus_requested(workload)
            job = self.jobs[workload.name] = JobRecord(
                workload.name, workload.project, requested, workload.submitted
            )
        account = self.accounts[job.project]
        account.advance(now)
        running = not has_ended and has_pod_in(workload, RUNNING_STATES)
        self._set_allocation(now, job, account, _allocated_gpu_count(workload) if running else 0.0)
        if running or has_ended:
            self._end_pending_period(now, job, account)
            if running and job.since is None:
                job.since = now
                if job.first_start is None:
                    at = now if workload.started is None else min(now, workload.started)
                    # Jobs that run from the start were never pending.
                    job.first_start = max(job.submitted, at)
        elif job.pending_since is None:
            self._begin_pending_period(now, job, account)
        if has_ended:
            job.ended = now

    def close(self, now: int) -> None:
        """Close the records at the end of the replay."""
        for account in self.accounts.values():
            account.advance(now)
        for job in self.jobs.values():
            if job.pending_since is not None:
                self._end_pending_period(now, job, self.accounts[job.project])

    def pending_count_curve(self) -> Curve:
        """Return the number of pending workloads over time."""
        curve: Curve = []
        pending = 0
        for now, change in sorted(self._queue_changes, key=lambda line: line[0]):
            pending += change
            _append_point(curve, now, pending)
        return curve

    def _set_allocation(self, now: int, job: JobRecord, account: ProjectAccount, gpus: float) -> None:
        before = self._allocated_gpus.get(job.name, 0.0)
        if gpus != before:
            account.gpus += gpus - before
            self._allocated_gpus[job.name] = gpus
            _append_point(account.allocated, now, account.gpus)

    def _begin_pending_period(self, now: int, job: JobRecord, account: ProjectAccount) -> None:
        if job.since is not None:
            job.stops += 1
        job.since, job.pending_since, job.clock_when_pending = (
            None,
            now,
            account.seconds_with_free_gpus(job.gpus),
        )
        account.pending += 1
        self._queue_changes.append((now, 1))

    def _end_pending_period(self, now: int, job: JobRecord, account: ProjectAccount) -> None:
        if job.pending_since is None:
            return
        job.pending_seconds += now - job.pending_since
        job.pending_seconds_in_quota += account.seconds_with_free_gpus(job.gpus) - job.clock_when_pending
        job.pending_since = None
        account.pending -= 1
        self._queue_changes.append((now, -1))


def _accounts(trace: Trace) -> Mapping[str, ProjectAccount]:
    sizes: dict[str, set[float]] = defaultdict(set)
    for workload in (*trace.arrivals, *trace.cluster.workloads):
        sizes[workload.project].add(gpus_requested(workload))
    return {
        queue.name: ProjectAccount(
            total_gpu_quota(queue), sizes=sorted(sizes[queue.name]), clocks=[0.0] * len(sizes[queue.name]),
            at=trace.cluster.now,
        )
        for queue in trace.cluster.queues
        if queue.parent is not None
    }  # fmt: skip


def _allocated_gpu_count(workload: Workload) -> float:
    return sum(pod.milli * len(pod.devices) for pod in workload.pods if pod.state in RUNNING_STATES) / MILLI


def _append_point(curve: Curve, now: int, value: float) -> None:
    if curve and curve[-1][0] == now:
        curve[-1] = (now, value)
    else:
        curve.append((now, value))


def integrate(curve: Sequence[tuple[int, float]], since: float, until: float) -> float:
    """Return the integral of a step function between two times in seconds."""
    return sum(
        value * max(0, min(end, until) - max(at, since))
        for (at, value), (end, _) in pairwise((*curve, (until, 0.0)))
    )
