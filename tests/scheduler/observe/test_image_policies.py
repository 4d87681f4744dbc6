"""Tests for pending workloads whose image a pool no longer accepts."""

import pytest

from pools.models import NodePool
from pools.services import edit_pool
from projects.models import Phase
from tests import factories as make
from tests.scheduler.stage import Stage

pytestmark = pytest.mark.usefixtures("runs_images")

FORBID = {"image_policy": {"mode": "forbid", "patterns": []}}


def forbid_images(stage: Stage, pool: NodePool) -> None:
    edit_pool(actor=stage.cast.alice, pool=pool, changes=FORBID)


def test_pending_workload_does_not_start_in_a_pool_that_now_rejects_its_image(stage: Stage) -> None:
    workload = stage.submit(image="ghcr.io/org/train:1")
    forbid_images(stage, stage.cast.pool)
    stage.tick(2)
    assert (stage.phase(workload), workload.reason) == (Phase.PENDING, "Misconfigured")
    assert "the image policy of pool local forbids container images" in workload.message
    stage.cast.pool.refresh_from_db()
    edit_pool(actor=stage.cast.alice, pool=stage.cast.pool, changes={"image_policy": {}})
    stage.tick(2)
    assert stage.phase(workload) != Phase.PENDING


def test_pending_workload_starts_in_another_pool_that_accepts_its_image(stage: Stage) -> None:
    other = make.pool("other")
    stage.node(0, pool=other)
    for owner in (stage.cast.research, stage.cast.vision):
        make.quota(owner, other, 4)
    workload = stage.submit(image="ghcr.io/org/train:1", pools=["local", "other"])
    forbid_images(stage, stage.cast.pool)
    stage.tick(2)
    assert stage.phase(workload) != Phase.PENDING
    assert {pod.node.pool.name for pod in stage.pods(workload)} == {"other"}


def test_workload_without_an_image_stays_pending_if_the_pool_requires_one(stage: Stage) -> None:
    workload = stage.submit()
    changes = {"image_policy": {"mode": "require", "patterns": []}}
    edit_pool(actor=stage.cast.alice, pool=stage.cast.pool, changes=changes)
    stage.tick(2)
    assert (stage.phase(workload), workload.reason) == (Phase.PENDING, "Misconfigured")
    assert "pool local only runs workloads with a container image" in workload.message
