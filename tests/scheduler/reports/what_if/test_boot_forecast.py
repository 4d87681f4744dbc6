"""Tests that dry runs predict a start after nodes have booted."""

from datetime import timedelta

import pytest

from pools.models import Node, NodePool
from projects.models import Workload
from projects.services.workloads.prediction import Prediction, dry_run
from scheduler.reports.explanations.workload import explain
from tests import factories as make
from tests.cast import training
from tests.scheduler.stage import NOON, Stage

FOUR = [{"name": "worker", "replicas": 4, "gpu": 1}]


@pytest.fixture
def empty_pool(stage: Stage) -> NodePool:
    Node.objects.all().delete()
    pool = stage.cast.pool
    pool.nodes_min, pool.ready_threshold, pool.operational_since, pool.nodes_desired = 0, 1, None, 0
    pool.save()
    return pool


def predict(stage: Stage, **changes: object) -> Prediction:
    document = training("asked", project="vision", **changes)
    return dry_run(actor=stage.cast.alice, document=document, now=NOON)


def ended_node(stage: Stage, ordinal: int, boot: int) -> None:
    """Create a node from an earlier day that took `boot` seconds to become ready."""
    created = NOON - timedelta(days=1)
    ready = created + timedelta(seconds=boot)
    stage.node(ordinal, state="ended", created_at=created, ready_at=ready, ended_at=created + timedelta(1))


def test_workload_that_only_lacks_nodes_starts_once_they_have_booted(
    stage: Stage, empty_pool: NodePool
) -> None:
    prediction = predict(stage, roles=FOUR)
    assert prediction.outcome == "would_stay_pending"
    assert prediction.nodes_to_boot >= 1
    assert prediction.expected_start is None
    assert prediction.expected_start_reason == (
        "no node of pool local has booted yet, so the boot time is unknown"
    )


def test_local_nodes_are_expected_to_boot_within_seconds(stage: Stage, empty_pool: NodePool) -> None:
    NodePool.objects.update(provider="local")
    prediction = predict(stage, roles=FOUR)
    assert prediction.nodes_to_boot >= 1
    assert prediction.expected_start == NOON + timedelta(seconds=2)
    assert prediction.expected_start_reason == "if nodes boot within seconds, as usual on this machine"


def test_expected_start_is_based_on_the_median_of_earlier_boot_times(
    stage: Stage, empty_pool: NodePool
) -> None:
    for ordinal, boot in enumerate((60, 90, 600)):
        ended_node(stage, ordinal, boot)
    stage.node(4, state="booting", created_at=NOON, ready_at=NOON + timedelta(hours=9))
    prediction = predict(stage, roles=FOUR)
    assert prediction.nodes_to_boot >= 1
    assert prediction.expected_start == NOON + timedelta(seconds=90)
    assert prediction.expected_start_reason == "if nodes boot as fast as the last 3 nodes of pool local"


def test_paused_pool_boots_no_node(stage: Stage, empty_pool: NodePool) -> None:
    NodePool.objects.update(paused=True)
    assert predict(stage, roles=FOUR).nodes_to_boot == 0


def test_workload_over_its_limit_does_not_wait_for_a_node_to_boot(stage: Stage, empty_pool: NodePool) -> None:
    stage.cast.vision.quotas.update(gpu_milli=0, limit_gpu_milli=1000)
    prediction = predict(stage, roles=FOUR)
    assert prediction.blockers[0]["reason"] == "ProjectLimit"
    assert prediction.nodes_to_boot == 0


def test_workload_with_reserved_nodes_starts_after_they_boot(stage: Stage) -> None:
    Node.objects.update(state="booting")
    prediction = predict(stage, roles=FOUR)
    assert prediction.outcome == "would_stay_pending"
    assert prediction.decisions
    nodes = {pod["node"] for decision in prediction.decisions for pod in decision["pods"]}
    assert prediction.nodes_to_boot == len(nodes)


def pending_for_nodes(stage: Stage) -> Workload:
    """Create a workload that the last cycle left pending until nodes of the pool `local` have booted."""
    explanation = {
        "pool": "local", "queue_position": 1, "expected_start_reason": "their boot time is unknown",
        "blockers": [{"reason": "WaitingForScaleUp", "message": "", "numbers": {}}],
    }  # fmt: skip
    return make.workload(stage.cast.vision, "train", phase="pending", explanation=explanation)


def test_workload_that_waits_for_booting_nodes_is_expected_to_start_when_they_are_ready(
    stage: Stage, empty_pool: NodePool
) -> None:
    ended_node(stage, 1, boot=90)
    ready = NOON + timedelta(seconds=40)
    stage.node(2, state="booting", created_at=NOON - timedelta(seconds=50), ready_at=ready)
    stage.node(3, state="requested", created_at=NOON, ready_at=None)
    explained = explain(stage.cast.alice, pending_for_nodes(stage), NOON)
    assert explained.expected_start == NOON + timedelta(seconds=90)
    assert explained.expected_start_reason == "if nodes boot as fast as the last node of pool local"


def test_expected_start_is_unknown_if_a_node_is_late(stage: Stage, empty_pool: NodePool) -> None:
    ended_node(stage, 1, boot=90)
    stage.node(2, state="booting", created_at=NOON - timedelta(seconds=100), ready_at=NOON - timedelta(0, 10))
    explained = explain(stage.cast.alice, pending_for_nodes(stage), NOON)
    assert (explained.expected_start, explained.expected_start_reason) == (None, "their boot time is unknown")
