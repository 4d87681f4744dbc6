"""Tests for a Slurm pool from demand to nodes and back."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction

from berth.core.errors import Invalid
from pools.models import Node, ScalingEvent
from tests.fakes.slurm import FakeSlurm
from tests.pools.reconciler.test_reconciler_killed import KillAt
from tests.pools.slurm.stage import make_slurm, slurm_stage
from tests.pools.stage import Killed, pool

pytestmark = pytest.mark.django_db


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return make_slurm(tmp_path)


def recover_from_kill(directory: Path, kill: Callable[[str], None]) -> None:
    """Request two nodes, call `kill` at each kill point, and check that exactly two jobs exist at the end.

    The rows are rolled back afterwards.
    """
    with transaction.atomic():
        slurm = make_slurm(directory)
        stage = slurm_stage(slurm)
        stage.resize(2)
        stage.kill = kill
        with suppress(Killed):
            stage.settle()
        stage.kill = lambda where: None
        stage.settle()
        stage.check()
        assert len(slurm.jobs) == 2, f"{len(slurm.jobs)} jobs for an order of 2"
        transaction.set_rollback(True)


def kill_points(directory: Path) -> list[str]:
    """Return the names of all kill points of a launch request, in order."""
    points: list[str] = []
    recover_from_kill(directory, points.append)
    return points


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_reconciler_killed_at_any_step_of_a_slurm_launch_recovers(tmp_path: Path) -> None:
    points = kill_points(tmp_path / "undisturbed")
    for n, name in enumerate(points, start=1):
        killer = KillAt(n)
        recover_from_kill(tmp_path / str(n), killer)
        assert killer.where == name


@pytest.mark.heavy
def test_queued_slurm_job_is_shown_as_a_requested_node_with_slurms_reason(slurm: FakeSlurm) -> None:
    # The boot timeout counts from the time at which Slurm starts the job.
    slurm.set(machines=["n0"])
    stage = slurm_stage(slurm)
    stage.resize(2)
    stage.settle()
    assert stage.states() == {0: "ready", 1: "requested"}
    for _ in range(10):
        stage.pass_time(stage.pool.boot_timeout)
        stage.reconcile()
    waiting = stage.node(1)
    assert (waiting.state, waiting.queued) == ("requested", True)
    assert (
        waiting.not_ready_reason
        == "Slurm job 2 is queued: it is waiting for resources to become free (Resources)"
    )
    slurm.set(machines=["n0", "n1"])
    stage.pass_time(15)
    stage.reconcile()
    started = stage.node(1)
    assert (started.state, started.queued, started.created_at) == ("booting", False, stage.now)
    stage.pass_time(stage.pool.boot_timeout)
    stage.reconcile()
    assert 1 not in stage.states() or stage.states()[1] == "requested"
    assert "not ready within 900 s" in ScalingEvent.objects.filter(kind="lost").latest("pk").reason


@pytest.mark.heavy
def test_queued_slurm_jobs_are_cancelled_when_no_longer_needed(slurm: FakeSlurm) -> None:
    slurm.set(machines=["n0", "n1"])
    stage = slurm_stage(slurm)
    stage.resize(4)
    stage.settle()
    assert len(slurm.queue()) == 4
    stage.resize(2)
    stage.settle()
    assert stage.states() == {0: "ready", 1: "ready"}
    assert len(slurm.queue()) == 2
    assert not ScalingEvent.objects.filter(kind="boot_failed").exists()
    stage.resize(0)
    stage.settle()
    assert slurm.queue() == []


@pytest.mark.heavy
def test_node_with_an_expiring_allocation_is_drained_and_replaced(slurm: FakeSlurm) -> None:
    stage = slurm_stage(slurm, time_limit="2h", notice_lead="15m")
    stage.resize(2)
    stage.settle()
    slurm.change(1, TimeLeft="14:00")
    stage.pass_time(15)
    stage.reconcile()
    node = Node.objects.get(state="draining")
    assert node.drain_reason == "the Slurm allocation 2 ends at its time limit"
    assert node.interruption_at == stage.now + timedelta(minutes=14)
    stage.settle()
    stage.check()
    assert [job["State"] for job in slurm.jobs] == ["RUNNING", "CANCELLED", "RUNNING"]


@pytest.mark.heavy
def test_node_with_an_ended_slurm_job_is_lost_and_replaced(slurm: FakeSlurm) -> None:
    stage = slurm_stage(slurm)
    stage.resize(2)
    stage.settle()
    reasons = {
        "NODE_FAIL": "its machine failed",
        "PREEMPTED": "Slurm preempted it",
        "CANCELLED": "it was cancelled",
    }
    for state, reason in reasons.items():
        newest = slurm.jobs[-1]
        slurm.change(-1, State=state)
        stage.pass_time(15)
        stage.reconcile()
        event = ScalingEvent.objects.filter(kind="lost").latest("pk")
        assert event.reason == f"Slurm job {newest['JobID']} has ended on {newest['NodeList']}: {reason}"
        stage.settle()
        stage.check()


@pytest.mark.heavy
def test_nodes_are_kept_while_slurm_is_unresponsive(slurm: FakeSlurm) -> None:
    stage = slurm_stage(slurm)
    stage.resize(2)
    stage.settle()
    slurm.set(down=True)
    stage.resize(3)
    for _ in range(5):
        stage.pass_time(60)
        stage.reconcile()
    assert stage.states() == {0: "ready", 1: "ready"}
    stage.pool.refresh_from_db()
    assert "Unable to contact slurm controller" in stage.pool.last_error
    assert set(stage.errors()) == {"timeout"}
    slurm.set(down=False)
    stage.settle()
    stage.check()
    stage.pool.refresh_from_db()
    assert stage.pool.last_error == ""


@pytest.mark.heavy
def test_job_without_a_node_is_cancelled_after_the_grace_period(slurm: FakeSlurm) -> None:
    stage = slurm_stage(slurm)
    stage.resize(1)
    stage.settle()
    slurm.add("berth.here.small.7.lost-order")
    slurm.add("berth.there.small.7.lost-order")
    slurm.add("theirs")
    stage.pass_time(15)
    stage.settle()
    assert sorted(slurm.queue())[1:] == ["berth.there.small.7.lost-order", "theirs"]
    assert len(slurm.queue()) == 3


@pytest.mark.heavy
def test_duplicate_job_of_a_launch_request_is_cancelled(slurm: FakeSlurm) -> None:
    stage = slurm_stage(slurm)
    stage.resize(1)
    stage.settle()
    slurm.add(slurm.jobs[0]["Name"], State="PENDING", Reason="Dependency", NodeList="")
    stage.pass_time(15)
    stage.settle()
    stage.check()
    assert [job["State"] for job in slurm.jobs] == ["RUNNING", "CANCELLED"]


@pytest.mark.heavy
def test_allocation_shorter_than_the_notice_period_counts_as_a_failed_boot(slurm: FakeSlurm) -> None:
    stage = slurm_stage(slurm)
    stage.resize(1)
    stage.reconcile()
    slurm.change(0, TimeLimit="5:00", TimeLeft="5:00")
    stage.pass_time(15)
    stage.reconcile()
    stage.pool.refresh_from_db()
    assert stage.pool.boot_failures == 1
    assert "the time limit of Slurm job 1 is 5m, which leaves no time for work" in stage.pool.boot_error


@pytest.mark.heavy
def test_allocation_that_ends_before_its_node_has_booted_counts_as_a_failed_boot(slurm: FakeSlurm) -> None:
    stage = slurm_stage(slurm)
    stage.resize(1)
    stage.reconcile()
    slurm.change(0, TimeLimit="12:00", TimeLeft="9:00")
    stage.pass_time(15)
    stage.reconcile()
    stage.pool.refresh_from_db()
    assert stage.pool.boot_failures == 1
    assert "the Slurm allocation 1 ends at its time limit" in stage.pool.boot_error
    assert slurm.queue() == [], "the next job is not ordered at once"


def test_slurm_time_limit_shorter_than_boot_and_notice_period_is_rejected() -> None:
    with pytest.raises(Invalid) as raised:
        pool(provider="slurm", runtime="ray", provider_settings={"time_limit": "20m"})
    [problem] = raised.value.problems
    assert problem.path == "provider_settings.time_limit"
    assert problem.allowed == "more than 25m"
    assert pool(provider="slurm", runtime="ray", provider_settings={"time_limit": "20m"}, boot_timeout=300)


def test_slurm_pool_runs_ray() -> None:
    with pytest.raises(Invalid) as raised:
        pool(provider="slurm", runtime="local", provider_settings={})
    assert [problem.path for problem in raised.value.problems] == ["runtime"]
