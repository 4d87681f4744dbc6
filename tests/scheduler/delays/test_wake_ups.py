"""Tests that no submission and no pod report waits for the scheduler's next timed tick.

The tests drive the rounds of a scheduler without sleeping. The scheduler is idle when it would
sleep until a timed tick although every notification has arrived.
"""

import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.db import connection

from berth.db.loops.wake import Waiter, WakeResult, wake
from projects.models import Phase, Pod, Quota, Workload
from scheduler.loop import tick
from scheduler.loop.dispatch.cleanup.sweep import MIN_ENDED_AGE
from scheduler.loop.leader import EMPTY_SECONDS, IDLE_SECONDS, QUIET_SECONDS, Scheduler
from tests.harness.samples import sample
from tests.scheduler.stage import Stage
from tests.support.crashes import listening
from tests.support.present import present
from tests.support.second_connection import run_on_second_connection

LONGEST_PAUSE = 10 * QUIET_SECONDS  # a longer pause is a sleep until a timed tick
MAX_ROUNDS = 1_000_000  # rounds are repeated without a pause while a retry is due in some milliseconds
MIN_STATEMENTS, MAX_STATEMENTS = 40, 240  # bounds on the statements until the scheduler rests
STRIDE = 24
ONE_GPU = [{"name": "worker", "replicas": 1, "gpu": 1}]
ALL_GPUS = [{"name": "worker", "replicas": 4, "gpu": 1}]


class Rounds:
    """The rounds of one scheduler process, with a notification listener but without pauses."""

    def __init__(self, stage: Stage, waiter: Waiter, scheduler: Scheduler) -> None:
        self.stage, self.waiter, self.scheduler = stage, waiter, scheduler
        self.statements = 0

    def run_until_rest(self, trigger: str = "") -> None:
        """Run rounds until the scheduler is idle. By default, earlier wake-ups start the first round."""
        trigger = trigger or self.scheduler.trigger(self.waiter, self._woken())
        for _ in range(MAX_ROUNDS):
            seconds = self.scheduler.step(trigger)
            woken = self._woken() if seconds > LONGEST_PAUSE else self.waiter.wait(0)
            if not woken and seconds > LONGEST_PAUSE:
                return
            trigger = self.scheduler.trigger(self.waiter, woken)
        raise AssertionError("the scheduler never came to rest")

    def _woken(self) -> WakeResult:
        """Return the wake-ups so far.

        Notifications arrive in order, so one more notification shows that all have arrived.
        """
        wake("scheduler", "last")
        woken = WakeResult()
        while "last" not in woken.reasons:
            more = self.waiter.wait(10)
            woken = WakeResult(woken.reasons | more.reasons, woken.ready | more.ready)
        return WakeResult(woken.reasons - {"last"}, woken.ready)

    def run_with(self, action: Callable[[], object], statement: int) -> bool:
        """Run until idle, and call `action` before the given statement. Return whether the action ran."""
        self.statements, ran = 0, False

        def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            nonlocal ran
            if not ran and self.statements == statement:
                ran = True
                action()
            self.statements += 1
            return execute(sql, params, many, context)

        with connection.execute_wrapper(count):
            self.run_until_rest()
        return ran

    def finish(self, *workloads: Workload) -> None:
        for workload in workloads:
            self.stage.finish(workload)
        self.run_until_rest()


@dataclass
class Submission:
    """A submission through another connection, at a time that the test chooses."""

    stage: Stage
    name: str
    workload: Workload | None = None

    def submit(self) -> None:
        self.workload = run_on_second_connection(lambda: self.stage.submit(self.name, roles=ONE_GPU))


@pytest.fixture
def rounds(stage: Stage) -> Iterator[Rounds]:
    scheduler = Scheduler(
        clock=stage.clock,
        runtime_for=lambda pool: stage.runtime,
        reconcile_pool=lambda *arguments: False,
        runtimes={"fake": stage.runtime},
        holder="first",
    )
    with Waiter("scheduler", scheduler.wake_descriptors()) as waiter:
        made = Rounds(stage, waiter, scheduler)
        made.run_until_rest("start")
        yield made


def test_timed_ticks_are_less_frequent_without_live_workloads(rounds: Rounds) -> None:
    assert rounds.scheduler._tick_pause(changed=False) == EMPTY_SECONDS
    running, pending = rounds.stage.submit("one", roles=ALL_GPUS), rounds.stage.submit("two", roles=ALL_GPUS)
    rounds.run_until_rest()
    assert rounds.scheduler._tick_pause(changed=False) == IDLE_SECONDS
    rounds.finish(running)
    assert rounds.scheduler._tick_pause(changed=False) == IDLE_SECONDS
    rounds.finish(pending)
    assert rounds.scheduler._tick_pause(changed=False) == EMPTY_SECONDS


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.heavy) for first in range(1, STRIDE))]
)
def test_workload_submitted_at_any_point_in_a_tick_is_scheduled_before_the_scheduler_idles(
    rounds: Rounds, first: int
) -> None:
    # While the scheduler starts one workload, another is submitted before one of its statements.
    for statement in range(first, MAX_STATEMENTS, STRIDE):
        one = rounds.stage.submit(f"one-{statement}", roles=ONE_GPU)
        other = Submission(rounds.stage, f"other-{statement}")
        if not rounds.run_with(other.submit, statement):
            assert statement > MIN_STATEMENTS
            return
        assert other.workload is not None
        phases = [rounds.stage.phase(workload) for workload in (one, other.workload)]
        assert phases == [Phase.RUNNING] * 2, f"submitted before statement {statement}"
        rounds.finish(one, other.workload)
    raise AssertionError(f"the scheduler did not rest after {MAX_STATEMENTS} statements")


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.heavy) for first in range(1, STRIDE))]
)
def test_gpus_freed_at_any_point_in_a_tick_are_allocated_before_the_scheduler_idles(
    rounds: Rounds, first: int
) -> None:
    running = rounds.stage.submit("first", roles=ALL_GPUS)
    rounds.run_until_rest()
    for statement in range(first, MAX_STATEMENTS, STRIDE):
        pending = rounds.stage.submit(f"next-{statement}", roles=ALL_GPUS)
        ran = rounds.run_with(partial(rounds.stage.finish, running), statement)
        if not ran:
            assert statement > MIN_STATEMENTS
            return
        assert rounds.stage.phase(running) == Phase.COMPLETED
        assert rounds.stage.phase(pending) == Phase.RUNNING, f"freed before statement {statement}"
        running = pending
    raise AssertionError(f"the scheduler did not rest after {MAX_STATEMENTS} statements")


def test_submission_is_scheduled_during_a_long_cleanup(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = rounds.stage
    for number in range(5):
        ended = stage.submit(f"ended-{number}", roles=ALL_GPUS)
        rounds.run_until_rest()
        rounds.finish(ended)
    stage.clock.advance(MIN_ENDED_AGE.total_seconds() + 1)
    assert len(stage.runtime.list_pods()) == 20
    urgent, forget = Submission(stage, "urgent"), stage.runtime.forget
    forgotten_before_start: list[str] = []

    def forget_slowly(pod_id: str) -> None:
        if urgent.workload is None:
            urgent.submit()
            connection = present(rounds.waiter._connection)
            assert select.select([connection], [], [], 20)[0], "the notification has arrived"
        elif not Pod.objects.filter(workload=urgent.workload, state="running").exists():
            forgotten_before_start.append(pod_id)
        forget(pod_id)

    monkeypatch.setattr(stage.runtime, "forget", forget_slowly)
    monkeypatch.setattr(tick, "CLEAN_UP_SECONDS", 0.0)  # forgetting a pod takes at least this long
    rounds.run_until_rest("wake")
    assert urgent.workload is not None
    assert stage.phase(urgent.workload) == Phase.RUNNING
    assert len(forgotten_before_start) <= 1
    assert len(stage.runtime.list_pods()) == 1


def test_scheduler_reloads_its_state_on_a_new_database_connection(rounds: Rounds) -> None:
    # After a crash, the database may lack the last transactions, which the scheduler still remembers.
    loop = rounds.scheduler.loop
    rounds.run_until_rest()
    assert rounds.scheduler.loop is loop
    connection.close()
    rounds.run_until_rest()
    assert rounds.scheduler.loop is not loop
    workload = rounds.stage.submit()
    rounds.run_until_rest()
    assert rounds.stage.phase(workload) == Phase.RUNNING


def test_stale_bundle_is_replanned_before_the_scheduler_idles(rounds: Rounds) -> None:
    edits: list[str] = []

    def edit_quota(name: str) -> None:
        if name == "cycle.decided" and not edits:
            edits.append(name)
            run_on_second_connection(lambda: Quota.objects.update(version=100))

    workload = rounds.stage.submit(roles=ONE_GPU)
    with listening(edit_quota):
        rounds.run_until_rest()
    assert edits
    assert rounds.stage.phase(workload) == Phase.RUNNING


@pytest.mark.parametrize("step", sample(["record_reports", "observe", "decide_pools", "commit"], 1))
def test_failed_tick_step_is_retried_before_the_scheduler_idles(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    original, failures = getattr(tick, step), [KeyError("a row appeared during the step")]

    def fail_once(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return original(*arguments, **options)

    monkeypatch.setattr(tick, step, fail_once)
    workload = rounds.stage.submit(roles=ONE_GPU)
    rounds.run_until_rest()
    assert not failures
    assert rounds.stage.phase(workload) == Phase.RUNNING
