"""Tests for workloads that may use their last pool only after a delay (`burst_after`)."""

from datetime import timedelta
from typing import Any

import pytest

from berth.core.errors import Invalid
from pools.models import Node, NodePool
from projects.models import Phase
from projects.services import workloads
from projects.services.workloads import submission
from projects.services.workloads.prediction import dry_run, predict_edit
from scheduler.reports.explanations.workload import explain
from tests import factories as make
from tests.cast import training
from tests.scheduler.stage import NOON, Stage

BURST: dict[str, Any] = {"pools": ["local", "cloud"], "burst_after": 1800}


@pytest.fixture
def cloud(stage: Stage) -> NodePool:
    """Create a free pool at 2.50 per GPU-hour. The pool local has no usable nodes."""
    Node.objects.filter(pool=stage.cast.pool).update(state="cordoned")
    pool = make.pool("cloud", price_per_gpu_hour=2.5)
    stage.node(0, pool=pool)
    for owner in (stage.cast.research, stage.cast.vision):
        make.quota(owner, pool, 4)
    return pool


def test_workload_bursts_to_the_last_pool_only_after_its_burst_delay(stage: Stage, cloud: NodePool) -> None:
    workload = stage.submit(**BURST)
    stage.tick(2)
    assert stage.phase(workload) == Phase.PENDING
    stage.clock.advance(1798)
    stage.tick()
    assert stage.phase(workload) == Phase.PENDING
    stage.clock.advance(1)
    stage.tick(2)
    assert {pod.node.pool.name for pod in stage.pods(workload)} == {"cloud"}


def test_workload_does_not_use_the_burst_pool_before_the_burst_delay_ends(
    stage: Stage, cloud: NodePool
) -> None:
    Node.objects.filter(pool=stage.cast.pool).update(state="ready")
    workload = stage.submit(**BURST)
    stage.tick(2)
    assert {pod.node.pool.name for pod in stage.pods(workload)} == {"local"}


def test_submissions_predictions_and_explanations_state_the_burst_time_and_price(
    stage: Stage, cloud: NodePool
) -> None:
    sentence = (
        "From 2026-06-01 12:30:00 UTC, the workload may also start in the pool cloud, where 2 GPUs cost "
        "5.00 per hour."
    )
    document = training("burst", **BURST, roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    actor, project = stage.cast.alice, stage.cast.vision
    predicted = dry_run(actor=actor, document={**document, "project": "vision"}, now=NOON)
    assert (predicted.outcome, predicted.warnings) == ("would_stay_pending", [sentence])
    stored = submission.submit_with_warnings(actor=actor, project=project, document=document, now=NOON)
    assert stored.warnings == [sentence]
    stage.tick()
    stored.workload.refresh_from_db()
    assert explain(actor, stored.workload, NOON).burst == sentence
    stage.clock.advance(1800)
    assert explain(actor, stored.workload, stage.clock.now()).burst == ""


def test_dry_run_of_an_edit_uses_the_last_pool_only_after_the_burst_delay(
    stage: Stage, cloud: NodePool
) -> None:
    workload, actor = stage.submit(**BURST), stage.cast.alice
    outcomes = []
    for seconds in (60, 1800):
        stage.clock.advance(seconds)
        now = stage.clock.now()
        edit = workloads.edit(actor=actor, workload=workload, patch={"priority": 60}, dry_run=True, now=now)
        outcomes.append(predict_edit(actor=actor, edit=edit, now=now).outcome)
    assert outcomes == ["would_stay_pending", "would_start"]


@pytest.mark.heavy
def test_burst_delay_restarts_after_a_preemption(stage: Stage, cloud: NodePool) -> None:
    Node.objects.filter(pool=stage.cast.pool).update(state="ready")
    workload = stage.submit(**BURST)
    stage.tick(2)
    stage.clock.advance(3600)
    Node.objects.filter(pool=stage.cast.pool).update(state="lost")
    stage.tick(6, seconds=30)
    assert stage.phase(workload) == Phase.PENDING
    stage.tick(60, seconds=30)
    assert {pod.node.pool.name for pod in stage.pods(workload, "running")} == {"cloud"}


@pytest.mark.heavy
def test_dropped_reservation_does_not_restart_the_burst_delay(stage: Stage, cloud: NodePool) -> None:
    own = Node.objects.filter(pool=stage.cast.pool)
    own.update(state="booting", ready_at=NOON + timedelta(hours=2))
    workload = stage.submit(**BURST)
    stage.tick(2)
    assert stage.phase(workload) == Phase.RESERVED
    stage.clock.advance(1700)
    stage.tick()
    assert stage.phase(workload) == Phase.RESERVED, "the last pool cannot be used yet"
    own.update(state="lost")
    stage.tick(2)
    assert stage.phase(workload) == Phase.PENDING
    stage.clock.advance(100)
    stage.tick(2)
    assert {pod.node.pool.name for pod in stage.pods(workload)} == {"cloud"}


@pytest.mark.heavy
def test_burst_requires_at_least_two_pools(stage: Stage) -> None:
    with pytest.raises(Invalid) as error:
        stage.submit(pools=["local"], burst_after=1800)
    assert "burst_after" in str(error.value) and "two or more pools" in str(error.value)
