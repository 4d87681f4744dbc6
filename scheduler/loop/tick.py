"""One tick of the scheduler: observe, decide, commit, dispatch, reconcile.

Each step reads its input from the database and can be repeated after a crash.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from berth.core.clock import Clock
from berth.core.garbage import FullCollections
from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import HeldLease, LeadershipLost, fenced_transaction
from berth.db.loops.races import is_lost_race
from berth.db.loops.wake import wake
from berth.server.tracing.spans import span
from pools.engine.victims import LostWork
from pools.lost_work import LazyLostWork
from pools.models import NodePool
from scheduler.engine.model import NodeState
from scheduler.engine.plan import Bundle, Plan
from scheduler.loop import log_context
from scheduler.loop.commit import commit
from scheduler.loop.commit.reservations import drop_stale_reservations
from scheduler.loop.commit.shared_quotas import select_within_shared_quotas
from scheduler.loop.context import SchedulerContext
from scheduler.loop.cycle_record import (
    CycleMemory,
    CycleRun,
    CycleTimer,
    explain_pending_workloads,
    record_earlier_cycles,
    record_failure,
    record_newest_cycle,
    store_snapshot,
    write_reason_batch,
)
from scheduler.loop.decide import decide_pools
from scheduler.loop.dispatch import ReportSummary, record_reports, start_pods, stop_pods
from scheduler.loop.dispatch.checkpoints import CHECK_INTERVAL, record_checkpoints
from scheduler.loop.dispatch.cleanup.leftovers import (
    delete_logs_of_deleted_workloads,
    queue_workspace_deletions,
)
from scheduler.loop.dispatch.cleanup.sweep import sweep
from scheduler.loop.dispatch.cluster_quotas import record_cluster_quotas
from scheduler.loop.dispatch.evictions.drains import evict_from_overdue_drains
from scheduler.loop.dispatch.lifecycle.arrays import advance_arrays
from scheduler.loop.dispatch.lifecycle.dependencies import cancel_dependents
from scheduler.loop.dispatch.lifecycle.limits import IdleTracker, end_overdue_workloads
from scheduler.loop.dispatch.starts.rendezvous import rendezvous_for_plan
from scheduler.loop.observe.view import ClusterView, observe
from scheduler.loop.queries import POOLS, PROJECTS
from scheduler.loop.reconcile.demand import report_demand, report_empty_drains
from scheduler.loop.reconcile.idle_rules import IDLE_RULES_INTERVAL, apply_idle_rules
from scheduler.loop.reconcile.release_nodes import NodeReleases
from scheduler.schedules import sync_schedules

log = logging.getLogger(__name__)

Result = TypeVar("Result")
# Function that is called for each pool, and returns True if the pool has changed.
ReconcilePool = Callable[[NodePool, datetime, HeldLease, Mapping[int, LostWork]], bool]
POD_TRIGGER = "pod"  # trigger of a tick caused only by pod reports
SWEEP_EVERY = timedelta(seconds=60)
CYCLES_PER_STEP = 50  # maximum number of earlier cycles that one step records
CLEAN_UP_SECONDS = 0.005  # maximum time for sweeping pods in one clean-up round


@dataclass(slots=True)
class Loop:
    """Loop of the leading scheduler. Its caches never affect a decision."""

    context: SchedulerContext
    clock: Clock
    reconcile_pool: ReconcilePool
    memory: CycleMemory = field(default_factory=CycleMemory)
    idle: IdleTracker = field(default_factory=IdleTracker)
    releases: NodeReleases = field(default_factory=NodeReleases)
    swept_at: datetime | None = None
    collections: FullCollections = field(default_factory=FullCollections)
    checkpoints_at: datetime | None = None
    idle_rules_at: datetime | None = None
    _timer: CycleTimer = field(init=False)
    _runs: list[CycleRun] = field(default_factory=list)  # unrecorded cycles, and the newest cycle
    _notes: list[str] = field(default_factory=list)
    _stale: dict[str, datetime] = field(default_factory=dict)  # time of each workload's last stale bundle
    _changed: bool = False
    _has_postponed_starts: bool = False  # True if the next tick records starts reported in this tick
    is_empty: bool = False  # whether the newest observation contained no live workload
    # True if a step failed or a bundle was stale, so that the next tick must follow soon.
    must_retry: bool = False
    # True if this tick left bundles, starts or reports for the next tick, which must follow immediately.
    has_more: bool = False

    def tick(self, trigger: str = "tick", *, reconcile: bool = True) -> bool:
        """Run the five steps once.

        Return whether anything changed. With `reconcile=False`, the caller runs the slow last step.
        """
        now, began = self.clock.now(), time.monotonic()
        self._changed, self.must_retry, self.has_more = False, False, False
        with self._trace_tick(trigger):
            view = self.observe(now, trigger)  # read rows into a frozen view, or None if no decision is due
            plan = self.decide(view)  # plan from the view, without side effects
            self.commit(view, plan)  # store the plan; each bundle is checked again under locks
            self.dispatch(now, view)  # start and stop pods as stored
        self.context.size.adapt(time.monotonic() - began, has_more=self.has_more)
        self.has_more |= self._has_postponed_starts
        if reconcile:
            self._changed |= self.reconcile()  # resize pools as stored
        return self._changed

    def observe(self, now: datetime, trigger: str = "tick") -> ClusterView | None:
        """Record pod reports, then read and return the cluster's rows.

        Return None if reading fails or no decision is due.
        """
        self._timer = CycleTimer(now, trigger)
        # Use the pools of the newest view to save a query.
        pools = [*(self._runs[-1].view.pools.values() if self._runs else POOLS())]
        reports = self._run_safely("recording pod reports", lambda: record_reports(now, self.context, pools))
        intake = reports or ReportSummary()
        self._notes += intake.notes
        self.context.sent.forget_starts(intake.unknown)
        limited = self._run_safely("quotas of clusters", lambda: record_cluster_quotas(pools, self.context))
        self.context.has_reservations = True  # if the next step fails, assume that reservations exist
        dropped = self._run_safely("reservations", lambda: drop_stale_reservations(now, self.context))
        advanced = self._advance_arrays(now)
        self._changed |= bool(intake.changed or dropped or limited)
        self.has_more |= intake.has_more
        self._has_postponed_starts = intake.postponed > 0
        if trigger == POD_TRIGGER and not (intake.ended or dropped or advanced or limited):
            return None
        view = self._cycle_step("observe", lambda: self._observe_rows(now))
        self.is_empty = view is not None and not view.workloads
        if view is not None and view.never_met:
            dependents = view.never_met
            cancelled = self._run_safely(
                "dependencies", lambda: cancel_dependents(dependents, now, self.context)
            )
            self._changed |= bool(cancelled)
            self.has_more |= bool(cancelled)  # other workloads may depend on the cancelled ones
        crash_point("cycle.observed")
        return view

    def _observe_rows(self, now: datetime) -> ClusterView:
        context = self.context
        return observe(now, context.specs, context.cache, has_reservations=context.has_reservations)

    def decide(self, view: ClusterView | None) -> Plan | None:
        """Run the engine. Return its plan, or None if there is no view or the engine has failed."""
        if view is None:
            return None
        plan = self._cycle_step("decide", lambda: decide_pools(view.snapshot, self.context.layout))
        crash_point("cycle.decided")
        return plan

    def commit(self, view: ClusterView | None, plan: Plan | None) -> None:
        """Apply the bundles that are still valid, in one transaction."""
        if view is None or plan is None:
            return
        record = self._timer.record(view, plan, self.context.held_lease)
        bundles = select_within_shared_quotas(self._next_bundles(plan), view.snapshot)
        part = replace(plan, bundles=bundles)

        def step() -> CycleRun:
            rendezvous = rendezvous_for_plan(view, part, self.context)
            return CycleRun(
                view, plan, commit(view, part, self.context.held_lease, record, rendezvous), record
            )

        run = self._cycle_step("commit", step)
        if run is not None:
            untried = sum(bundle.workload not in self._stale for bundle in plan.bundles)
            goes_on = bool(run.outcome.applied) or untried > self.context.size.starts
            self.has_more |= goes_on and len(plan.bundles) > len(bundles)
            record.commit_ms = self._timer.milliseconds["commit"]
            self._runs.append(run)
            self._changed |= bool(run.outcome.applied or run.outcome.stale)
            self.must_retry |= bool(run.outcome.stale)
            self._stale |= {bundle.workload: view.at for bundle, _ in run.outcome.stale}
            if run.outcome.affects_arrays and run.outcome.applied and self._advance_arrays(view.at):
                wake("scheduler", "array")  # the next cycle places the released tasks

    def _next_bundles(self, plan: Plan) -> tuple[Bundle, ...]:
        """Return this tick's bundles. Bundles that were stale recently come last."""
        workloads = {bundle.workload for bundle in plan.bundles}
        self._stale = {name: at for name, at in self._stale.items() if name in workloads}
        never = datetime.min.replace(tzinfo=UTC)
        bundles = sorted(plan.bundles, key=lambda bundle: self._stale.get(bundle.workload, never))
        return tuple(bundles[: self.context.size.starts])

    def dispatch(self, now: datetime, view: ClusterView | None = None) -> None:
        """Start and stop pods to match their rows."""
        with span("dispatch"):
            self._notes += start_pods(now, self.context, view.queues.find_projects if view else PROJECTS)
            self.has_more |= self.context.sent.starts_left
            self._notes += stop_pods(now, self.context)

    def reconcile(self) -> bool:
        """Run an entire reconcile pass, then clean up. Return whether anything changed."""
        changed, steps = False, chain(self.reconcile_steps(), self.clean_up_steps())
        while (step_changed := self.run_step(steps)) is not None:
            changed |= step_changed
        return changed

    def run_step(self, steps: Iterator[bool]) -> bool | None:
        """Run the next step. Return whether anything changed, or None after the last step."""
        with span("scheduler reconcile", berth__epoch=self.context.held_lease.epoch):
            return next(steps, None)

    def reconcile_steps(self) -> Iterator[bool]:
        """Enforce limits and drains, record cycles and resize pools.

        Yield whether each step changed rows. A tick may run between two steps.
        """
        now = self.clock.now()
        self._record_checkpoints(now)
        yield bool(
            self._run_safely("time limits", lambda: end_overdue_workloads(now, self.context, self.idle))
        )
        yield self._apply_idle_rules(now)
        if self._has_draining_nodes():
            yield bool(self._run_safely("drains", lambda: evict_from_overdue_drains(now, self.context)))
        yield from self._record_cycles()
        if self._has_draining_nodes():
            yield bool(
                self._run_safely("empty drained nodes", self._fence_step(lambda: report_empty_drains(now)))
            )
        yield self._release_nodes(now)
        yield from self._reconcile_pools(now)

    def clean_up_steps(self) -> Iterator[bool]:
        """Clean up once a minute.

        Yield False after each short step: no decision depends on the cleanup, so it never counts as a change.
        """
        now = self.clock.now()
        if self.swept_at is not None and now - self.swept_at < SWEEP_EVERY:
            return
        self.swept_at = now
        if self.collections.run_if_due(now, is_idle=self.is_empty):
            yield False
        began = time.monotonic()
        for note in self._run_steps_safely("sweep", sweep(now, self.context)):
            if note:
                log.warning(note)
            if time.monotonic() - began >= CLEAN_UP_SECONDS:
                yield False
                began = time.monotonic()
        for _ in self._run_steps_safely(
            "logs of deleted workloads", delete_logs_of_deleted_workloads(self.context)
        ):
            yield False
        for _ in self._run_steps_safely(
            "workspaces of deleted workloads", queue_workspace_deletions(now, self.context)
        ):
            yield False
        self._run_safely("schedules", self._fence_step(sync_schedules))

    def _advance_arrays(self, now: datetime) -> bool:
        advanced = bool(self._run_safely("arrays", lambda: advance_arrays(now, self.context)))
        self._changed |= advanced
        return advanced

    def _record_checkpoints(self, now: datetime) -> None:
        if self.is_empty:
            return
        if self.checkpoints_at is None or now - self.checkpoints_at >= CHECK_INTERVAL:
            self.checkpoints_at = now
            self._run_safely("checkpoints", lambda: record_checkpoints(self.context))

    def _apply_idle_rules(self, now: datetime) -> bool:
        if self.idle_rules_at is not None and now - self.idle_rules_at < IDLE_RULES_INTERVAL:
            return False
        self.idle_rules_at = now
        return bool(self._run_safely("idle rules", lambda: apply_idle_rules(now, self.context)))

    def _has_draining_nodes(self) -> bool:
        return not self._runs or any(
            node.state is NodeState.DRAINING for node in self._runs[-1].view.snapshot.nodes
        )

    def _record_cycles(self) -> Iterator[bool]:
        runs, (notes, self._notes) = [*self._runs], (self._notes, [])
        context, memory = self.context, self.memory
        newest = runs[-1] if runs and not runs[-1].written else None
        earlier = [run for run in runs[:-1] if not run.written]
        for at in range(0, len(earlier), CYCLES_PER_STEP):
            part = earlier[at : at + CYCLES_PER_STEP]
            yield self._run_record_step(partial(record_earlier_cycles, part, context, memory, notes))
        if newest is not None:
            for _ in self._run_steps_safely("records", explain_pending_workloads(newest, memory)):
                yield False
            yield self._run_record_step(lambda: record_newest_cycle(newest, context, memory, notes))
        for run in runs:
            if run.is_snapshot_due:
                for _ in self._run_steps_safely("snapshots", store_snapshot(run, context, memory)):
                    yield False
                yield False
        while runs and memory.explanations.has_unwritten_changes:
            yield self._run_record_step(lambda: write_reason_batch(runs[-1], context, memory))
        self._runs = self._runs[len(runs) :] or self._runs[-1:]

    def _run_record_step(self, step: Callable[[], bool]) -> bool:
        return bool(self._run_safely("records", step))

    def _release_nodes(self, now: datetime) -> bool:
        if not self._runs:
            return False
        return bool(
            self._run_safely(
                "nodes", lambda: self.releases.release_unneeded_nodes(self._runs[-1], now, self.context)
            )
        )

    def _reconcile_pools(self, now: datetime) -> Iterator[bool]:
        if self._runs:
            newest = self._runs[-1]
            lease = self.context.held_lease
            self._run_safely("demand", lambda: report_demand(newest.view, newest.plan.demand, lease))
        work = LazyLostWork(now)
        for pool in POOLS():
            if not self.context.leads():
                break
            yield bool(self._run_safely(f"pool {pool.name}", self._reconcile_step(pool, now, work)))

    def _reconcile_step(
        self, pool: NodePool, now: datetime, work: Mapping[int, LostWork]
    ) -> Callable[[], bool]:
        return lambda: self.reconcile_pool(pool, now, self.context.held_lease, work)

    @contextmanager
    def _trace_tick(self, trigger: str) -> Iterator[None]:
        log_context.unbind_cycle()
        with span(
            "scheduler tick", berth__trigger=trigger[:40], berth__epoch=self.context.held_lease.epoch
        ) as traced:
            before = len(self._runs)
            yield
            for run in self._runs[before:]:
                log_context.bind_cycle(run.record.pk, traced)
                traced.set_attributes(**run.span_attributes())
            traced.set_attributes(berth__changed=self._changed)

    def _cycle_step(self, name: str, step: Callable[[], Result]) -> Result | None:
        """Run and time one step of the cycle. Return its result, or None if it fails."""
        before = len(self._notes)
        with span(name), self._timer.measure(name):
            result = self._run_safely(name, step)
        if result is None:
            notes = self._notes[before:]
            self._run_safely(
                "records", lambda: record_failure(self._timer, self.context.held_lease, self.memory, notes)
            )
        return result

    def _fence_step(self, step: Callable[[], Result]) -> Callable[[], Result]:
        """Wrap a step, so that it writes only while this process is the leader."""

        def fenced_step() -> Result:
            with fenced_transaction(self.context.held_lease):
                return step()

        return fenced_step

    def _run_safely(self, name: str, step: Callable[[], Result]) -> Result | None:
        """Return the step's result, or None after an error.

        Only the loss of leadership or of the database is raised.
        """
        try:
            return step()
        except LeadershipLost:
            raise
        except Exception as error:
            if isinstance(error, OperationalError | InterfaceError) and not is_lost_race(error):
                raise
            log.exception("%s failed", name)
            self._notes.append(f"{name} failed: {error!r}")
            self.must_retry = True
            return None

    def _run_steps_safely(self, name: str, steps: Iterator[Result]) -> Iterator[Result]:
        """Yield each step's result, up to the first step that fails."""
        while (result := self._run_safely(name, lambda: next(steps, None))) is not None:
            yield result
