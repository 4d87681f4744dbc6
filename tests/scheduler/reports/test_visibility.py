"""Reasons do not reveal names of other tenants' work."""

import pytest

from pools.models import NodePool
from scheduler.engine.explain.reasons import blocker
from scheduler.engine.plan import Reason, Refusal
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import observe
from scheduler.models import Eviction
from scheduler.reports.explanations.writer import Explanations
from tests.scheduler.stage import Stage


def told_behind(stage: Stage, other: str) -> str:
    """What the row of vision/train-1 says when it has to wait behind the other."""
    workload = stage.submit()
    reasons = (blocker(Reason.BEHIND_RESERVATION, {"behind": other}),)
    refusal = Refusal("vision/train-1", reasons, position=1, key=("submitted",), pool="local")
    Explanations().write(observe(stage.clock.now(), SpecCache()), [refusal], None)
    workload.refresh_from_db()
    assert workload.reason == "BehindReservation"
    return f"{workload.message} {workload.explanation}"


@pytest.mark.parametrize("other", ["ads/secret-bid", "visions/secret-bid"])
def test_who_waits_behind_a_stranger_does_not_learn_its_name(stage: Stage, other: str) -> None:
    told = told_behind(stage, other)
    assert "secret-bid" not in told
    assert "a workload of another project" in told


def test_who_waits_behind_a_neighbour_learns_its_name(stage: Stage) -> None:
    assert "vision/first" in told_behind(stage, "vision/first")


def test_nor_does_who_made_others_give_way_because_nodes_are_kept_for_that_stranger(stage: Stage) -> None:
    """What was refused before is told to the project that it was for: of a third one it learns no name."""
    cast = stage.cast
    NodePool.objects.filter(pk=cast.pool.pk).update(reservation_after=0)
    cast.research.quotas.update(gpu_milli=3000)
    cast.vision.quotas.update(gpu_milli=3000)
    stage.quota(cast.product, 2)
    stage.quota(cast.ads, 2)
    stage.submit("low", priority=10, roles=worker(2))
    stage.tick(2, seconds=10)
    stage.submit("short", priority=90, max_runtime=3600, roles=worker(1))
    stage.tick(2, seconds=10)
    stage.submit("secret-bid", cast.ads, roles=worker(2))
    stage.tick(2, seconds=10)
    stage.submit("high", priority=90, roles=worker(1))
    stage.tick()
    refused = Eviction.objects.get(preemptor_name="high").numbers["refused"]
    message = "The free nodes are reserved for a workload of another project, which has waited longer."
    assert message in refused


def worker(gpu: int) -> list[dict[str, object]]:
    return [{"name": "worker", "replicas": 1, "gpu": gpu}]
