"""Tests that pending reasons do not reveal the names of other tenants' workloads."""

import pytest
from django.db import transaction

from pools.models import NodePool
from scheduler.engine.explain.reasons import blocker
from scheduler.engine.plan import Reason, Rejection
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import observe
from scheduler.models import Eviction
from scheduler.reports.explanations.writer import ExplanationWriter
from tests.scheduler.stage import Stage


def pending_texts(stage: Stage, other: str) -> str:
    workload = stage.submit()
    reasons = (blocker(Reason.BEHIND_RESERVATION, {"behind": other}),)
    rejection = Rejection("vision/train-1", reasons, position=1, key=("submitted",), pool="local")
    writer, view = ExplanationWriter(), observe(stage.clock.now(), SpecCache())
    assert not [*writer.select_changes(view, [rejection])], "one workload is a single part"
    with transaction.atomic():
        assert writer.write_batch(view.at, None) == 1
    workload.refresh_from_db()
    assert workload.reason == "BehindReservation"
    return f"{workload.message} {workload.explanation}"


@pytest.mark.every_case
@pytest.mark.parametrize("other", ["ads/secret-bid", "visions/secret-bid"])
def test_pending_reason_hides_the_name_of_another_projects_workload(stage: Stage, other: str) -> None:
    texts = pending_texts(stage, other)
    assert "secret-bid" not in texts
    assert "a workload of another project" in texts


def test_pending_reason_names_a_workload_of_the_same_project(stage: Stage) -> None:
    assert "vision/first" in pending_texts(stage, "vision/first")


def test_eviction_audit_hides_the_name_of_another_projects_workload(stage: Stage) -> None:
    # The preemptor's project sees the rejected alternatives without the names of other projects.
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
    rejected = Eviction.objects.get(preemptor_name="high").numbers["rejected"]
    message = "The free nodes are held for a workload of another project, which has waited longer."
    assert message in rejected


def worker(gpu: int) -> list[dict[str, object]]:
    return [{"name": "worker", "replicas": 1, "gpu": gpu}]
