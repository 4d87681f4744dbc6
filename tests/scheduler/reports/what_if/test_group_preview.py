"""Tests that the preview of a quota group matches the next cycle and stores nothing."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from berth.core.errors import Forbidden, Invalid
from pools.models import NodePool, QuotaGroup
from projects.services.quotas import groups, set_quota
from scheduler.models import Eviction
from scheduler.reports.what_if.group_preview import GroupImpact, preview_group
from tests.scheduler.stage import Stage

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]
TWO = [{"name": "worker", "replicas": 2, "gpu": 1}]


@pytest.fixture
def h100(stage: Stage, cloud: NodePool) -> QuotaGroup:
    """Create a group of both pools with 4 GPUs for research and 3 for vision.

    vision uses all GPUs in both pools. ads has a quota of 2 GPUs and a pending workload in pool local.
    """
    cast, alice = stage.cast, stage.cast.alice
    group = groups.create_group(actor=alice, name="h100", pools=[cast.pool, cloud])
    for owner, pool, gpus in (
        (cast.research, group, 4), (cast.vision, group, 3), (cast.product, cast.pool, 2),
        (cast.ads, cast.pool, 2),
    ):  # fmt: skip
        set_quota(actor=alice, owner=owner, pool=pool, values={"gpu": gpus})
    stage.submit("low", pools=["local"], roles=ONE, priority=10)
    stage.submit("high", pools=["local"], roles=ONE)
    stage.submit("other", pools=["cloud"], roles=TWO)
    stage.tick(3, seconds=10)
    stage.submit("rank", cast.ads, pools=["local"], roles=TWO)
    return group


def preview(stage: Stage, group: QuotaGroup, *pools: NodePool) -> GroupImpact:
    return preview_group(actor=stage.cast.alice, group=group, pools=pools, now=stage.clock.now())


def gpus(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, float]]:
    return {(row["name"], row["pool"]): (row["before"]["gpu"], row["after"]["gpu"]) for row in rows}


def test_group_preview_lists_quotas_evictions_and_starts(
    stage: Stage, h100: QuotaGroup, cloud: NodePool
) -> None:
    impact = preview(stage, h100, cloud)
    assert (impact.pools_before, impact.pools_after) == (["cloud", "local"], ["cloud"])
    assert gpus(impact.quotas) == {
        ("research", "cloud"): (2, 4), ("research", "local"): (2, 0), ("vision", "cloud"): (1, 3),
        ("vision", "local"): (1, 0),
    }  # fmt: skip
    # One GPU is over quota already: that of the workload with the lower priority.
    over = [(row["kind"], row["workload"], row["pods"], row["gpus"]) for row in impact.over_quota]
    assert over == [
        ("department", "high", 1, 1), ("department", "low", 1, 1), ("project", "high", 1, 1),
    ]  # fmt: skip
    assert sorted(row["summary"] for row in impact.evictions) == [
        "vision/high would be reclaimed for ads/rank (1 GPU, entire workload)",
        "vision/low would be reclaimed for ads/rank (1 GPU, entire workload)",
    ]
    assert [(row["project"], row["workload"]) for row in impact.starts] == [("ads", "rank")]


def test_quota_group_preview_matches_the_next_cycle(stage: Stage, h100: QuotaGroup, cloud: NodePool) -> None:
    impact = preview(stage, h100, cloud)
    groups.edit_group(actor=stage.cast.alice, group=h100, pools=[cloud], expected_version=int(impact.tag))
    stage.tick()
    assert {row.workload_name for row in Eviction.objects.all()} == {"high", "low"}


@pytest.mark.heavy
def test_quota_group_preview_writes_nothing(stage: Stage, h100: QuotaGroup, cloud: NodePool) -> None:
    with CaptureQueriesContext(connection) as captured:
        preview(stage, h100, cloud)
    assert [row["sql"] for row in captured if row["sql"].split()[0] in ("INSERT", "UPDATE", "DELETE")] == []


@pytest.mark.heavy
def test_pool_joining_a_group_gets_the_group_quota(stage: Stage, h100: QuotaGroup, cloud: NodePool) -> None:
    groups.edit_group(actor=stage.cast.alice, group=h100, pools=[cloud])
    cloud.refresh_from_db()
    impact = preview(stage, h100, cloud, stage.cast.pool)
    changed = gpus(impact.quotas)
    assert (changed["vision", "local"], changed["vision", "cloud"]) == ((0, 1), (3, 1))
    over = [(row["kind"], row["pool"], row["workload"], row["pods"]) for row in impact.over_quota]
    assert over == [("project", "cloud", "other", 1)], "vision has 4 GPUs in both pools, one over its quota"


@pytest.mark.heavy
def test_preview_of_a_quota_group_with_unchanged_pools_is_empty(
    stage: Stage, h100: QuotaGroup, cloud: NodePool
) -> None:
    impact = preview(stage, h100, stage.cast.pool, cloud)
    assert impact.changes_nothing
    assert not (impact.quotas or impact.over_quota or impact.shares or impact.evictions)


def test_quota_group_preview_without_pools_or_permission_is_rejected(stage: Stage, h100: QuotaGroup) -> None:
    with pytest.raises(Invalid, match="is not a list of pools"):
        preview(stage, h100)
    with pytest.raises(Forbidden):
        preview_group(actor=stage.cast.bob, group=h100, pools=[stage.cast.pool])
