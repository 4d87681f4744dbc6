"""Tests for quotas that span several pools, on random clusters and on small clusters written as data.

`BERTH_RANDOM_CLUSTERS=20000` sets the number of clusters per invariant (default: a few dozen).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.values.amounts import Bounds
from scheduler.engine.decide import decide, decide_with_layout
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan, QueueReport, Reason
from scheduler.loop.decide import without_pools
from scheduler.simulator import load, snapshot_to_scenario
from scheduler.simulator.simulation import SimulatedCluster
from tests.engine.reference.clusters import clusters
from tests.engine.reference.replay import Cluster, replay_plan
from tests.engine.test_invariants import load_snapshot, on_random_clusters

Document = dict[str, Any]
RESOURCES = range(3)


def group_quotas(snapshot: Snapshot) -> Iterator[tuple[str, list[str], Bounds, Bounds]]:
    """Yield the queue, pools, quota and limit of every group quota."""
    for queue in snapshot.queues:
        pools = {pool: one for pool, one in queue.pool_quotas.items() if one.group}
        if pools:
            first = next(iter(pools.values()))
            limit = first.limit
            if not first.over_quota:
                limit = Bounds(*(_lower(*pair) for pair in zip(limit, first.quota, strict=True)))
            yield queue.name, sorted(pools), first.quota, limit


def _lower(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def allocated_in(cluster: Cluster, pools: list[str], queue: str, *, firm_only: bool = False) -> list[int]:
    amounts = [cluster.allocated(pool, queue, firm_only=firm_only) for pool in pools]
    return [sum(column) for column in zip(*amounts, strict=True)]


def apply_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    world = SimulatedCluster(snapshot)
    world.apply_plan(plan)
    return world.snapshot()


# -- invariants


@on_random_clusters(12)
@given(document=clusters(grouped=True))
def test_in_quota_allocations_sum_to_at_most_the_group_quota(document: Document) -> None:
    snapshot, plan = load_snapshot(document)
    reports: dict[tuple[str, str], QueueReport] = {(row.pool, row.queue): row for row in plan.queues}
    for queue, pools, quota, _ in group_quotas(snapshot):
        rows = [reports[pool, queue] for pool in pools]
        for kind in RESOURCES:
            total = quota[kind]
            if total is not None:
                within = [min(row.allocated[kind], row.quota[kind] or 0) for row in rows]
                assert sum(within) <= total, (queue, kind, rows)


@on_random_clusters(12)
@given(document=clusters(grouped=True))
def test_quota_group_limit_applies_across_its_pools(document: Document) -> None:
    snapshot, plan = load_snapshot(document)
    before, after = Cluster(snapshot), replay_plan(snapshot, plan)
    for queue, pools, _, limit in group_quotas(snapshot):
        was, now = allocated_in(before, pools, queue), allocated_in(after, pools, queue)
        for kind in RESOURCES:
            bound = limit[kind]
            assert bound is None or now[kind] <= max(bound, was[kind]), (queue, was, now, limit)


@on_random_clusters(12)
@given(document=clusters(grouped=True))
def test_non_preemptible_workloads_stay_within_the_group_quota(document: Document) -> None:
    snapshot, plan = load_snapshot(document)
    before, after = Cluster(snapshot), replay_plan(snapshot, plan)
    for queue, pools, quota, _ in group_quotas(snapshot):
        was = allocated_in(before, pools, queue, firm_only=True)
        now = allocated_in(after, pools, queue, firm_only=True)
        for kind in RESOURCES:
            bound = quota[kind]
            assert bound is None or now[kind] <= max(bound, was[kind]), (queue, was, now, quota)


@on_random_clusters(12)
@given(document=st.one_of(*(clusters(quiet=True, grouped=True, time_based=timed) for timed in (False, True))))
def test_second_plan_on_an_unchanged_cluster_is_empty(document: Document) -> None:
    snapshot, plan = load_snapshot(document)
    assert decide(apply_plan(snapshot, plan)).bundles == ()


@on_random_clusters(3)
@given(document=clusters(quiet=True, grouped=True))
def test_evictions_eventually_stop_in_an_unchanged_cluster(document: Document) -> None:
    world = SimulatedCluster(load(document).snapshot)
    evictions = []
    for _ in range(40):
        plan = decide(world.snapshot())
        world.apply_plan(plan)
        world.advance(100)
        evictions.append(sum(len(bundle.evictions) for bundle in plan.bundles))
    assert evictions[-10:] == [0] * 10


@on_random_clusters(10)
@given(document=clusters(grouped=True))
def test_stored_cycle_replays_to_the_same_plan(document: Document) -> None:
    snapshot, plan = load_snapshot(document)
    stored = load(snapshot_to_scenario(snapshot)).snapshot
    assert stored == snapshot
    assert decide(stored) == plan


@on_random_clusters(6)
@given(document=clusters(quiet=True, grouped=True))
def test_reused_layout_produces_the_same_plan_as_a_new_layout(document: Document) -> None:
    snapshot = load(document).snapshot
    layout = None
    for _ in range(3):
        plan, layout = decide_with_layout(snapshot, layout)
        assert plan == decide(snapshot)
        snapshot = apply_plan(snapshot, plan)


@on_random_clusters(10)
@given(document=clusters(grouped=True))
def test_quota_group_has_no_effect_if_each_owner_uses_only_one_pool(document: Document) -> None:
    # Without department quotas, a project whose workloads all name one pool does not notice its group.
    for department in document["departments"]:
        department["quotas"] = {pool: {"gpu": None} for pool in ("p", "q")}
    pool_of = {project["name"]: "pq"[number % 2] for number, project in enumerate(document["projects"])}
    placed = {node["name"]: node["pool"] for node in document["nodes"]}
    document["workloads"] = [
        {**workload, "pools": [pool_of[workload["project"]]]}
        for workload in document["workloads"]
        if {placed[pod["node"]] for pod in workload.get("pods", ())} <= {pool_of[workload["project"]]}
        and {"workload": "w0"} not in workload.get("after", ())
    ]
    grouped, together = load_snapshot(document)
    apart = replace(
        grouped,
        queues=tuple(
            replace(
                queue,
                pool_quotas={pool: replace(one, group="") for pool, one in queue.pool_quotas.items()},
            )
            for queue in grouped.queues
        ),
    )
    separate = decide(apart)
    assert [_without_rules(bundle) for bundle in together.bundles] == [
        _without_rules(bundle) for bundle in separate.bundles
    ]
    reasons = [(row.workload, row.pool, row.blockers[0].reason) for row in together.rejections]
    assert reasons == [(row.workload, row.pool, row.blockers[0].reason) for row in separate.rejections]


def _without_rules(bundle: Any) -> Any:
    return bundle.kind, bundle.workload, bundle.pool, bundle.steps


# -- examples


def node(name: str, pool: str, gpus: int = 8) -> Document:
    return {"name": name, "pool": pool, "gpus": gpus, "cpu": 100, "memory_mib": 10**6, "gpu_model": "H100"}


def workload(name: str, project: str, gpus: int, pool: str, node: str = "", **values: Any) -> Document:
    pods = [{"role": "worker", "index": 0, "node": node}] if node else []
    roles = [{"name": "worker", "replicas": 1, "gpu": gpus}]
    return {"name": name, "project": project, "pools": [pool], "roles": roles, "pods": pods, **values}


def cluster(*workloads: Document, vision: Document, nlp: Document | None = None) -> Snapshot:
    """Return two pools of one 8-GPU node each, and two projects with a quota that spans both pools."""
    return load(
        {
            "format": "berth.scenario/1",
            "pools": [{"name": "cloud"}, {"name": "metal"}],
            "nodes": [node("c0", "cloud"), node("m0", "metal")],
            "quota_groups": [{"name": "h100", "pools": ["metal", "cloud"]}],
            "departments": [{"name": "research", "quotas": {"h100": {"gpu": None}}}],
            "projects": [
                {"name": "vision", "department": "research", "quotas": {"h100": vision}},
                {"name": "nlp", "department": "research", "quotas": {"h100": nlp or {"gpu": 0, "weight": 0}}},
            ],
            "workloads": list(workloads),
        }
    ).snapshot


def outcome(plan: Plan) -> list[tuple[str, str, str]]:
    return sorted((bundle.kind.value, bundle.workload, bundle.pool) for bundle in plan.bundles)


def blockers(plan: Plan, name: str) -> dict[Reason, str]:
    rejection = next(row for row in plan.rejections if row.workload == name)
    return {blocker.reason: blocker.message for blocker in rejection.blockers}


def test_two_pools_do_not_evict_for_the_same_quota() -> None:
    plan = decide(
        cluster(
            workload("n1", "nlp", 8, "cloud", "c0"),
            workload("n2", "nlp", 8, "metal", "m0"),
            workload("v1", "vision", 8, "cloud"),
            workload("v2", "vision", 8, "metal"),
            vision={"gpu": 8, "weight": 0},
        )
    )
    assert outcome(plan) == [("reclaim", "v1", "cloud")]
    assert blockers(plan, "v2")[Reason.WOULD_EXCEED_FAIR_SHARE] == (
        "With this workload, vision would have 8 GPUs allocated (0 now), more than its fair share (0) and "
        "quota (0). Only free capacity can be used. "
        "vision has 8 of its 8 GPUs allocated across h100: 8 in cloud."
    )


def test_allocation_over_the_group_quota_is_reclaimed_once() -> None:
    snapshot = cluster(
        workload("v1", "vision", 4, "cloud", "c0"),
        workload("v2", "vision", 4, "cloud", "c0"),
        workload("v3", "vision", 4, "metal", "m0"),
        workload("v4", "vision", 4, "metal", "m0"),
        workload("n1", "nlp", 4, "cloud"),
        workload("n2", "nlp", 4, "metal"),
        vision={"gpu": 12, "weight": 0},
        nlp={"gpu": 8, "weight": 0},
    )
    plan = decide(snapshot)
    assert outcome(plan) == [("reclaim", "n1", "cloud")]
    (eviction,) = plan.bundles[0].evictions
    assert eviction.rule == (
        "vision had 8 GPUs allocated or reserved, more than its fair share of 4 GPUs; "
        "its quota in h100 is 12 GPUs, and it has 8 GPUs allocated in the group's other pools"
    )
    assert decide(apply_plan(snapshot, plan)).bundles == ()


def test_quota_larger_than_one_pool_is_met_across_two_pools() -> None:
    plan = decide(
        cluster(
            workload("n1", "nlp", 8, "cloud", "c0"),
            workload("n2", "nlp", 8, "metal", "m0"),
            workload("v1", "vision", 8, "cloud"),
            workload("v2", "vision", 8, "metal"),
            vision={"gpu": 16, "weight": 0},
        )
    )
    assert outcome(plan) == [("reclaim", "v1", "cloud"), ("reclaim", "v2", "metal")]


def test_gang_is_not_split_across_two_pools() -> None:
    gang = {**workload("v1", "vision", 8, "cloud"), "pools": ["cloud", "metal"]}
    gang["roles"] = [{"name": "worker", "replicas": 2, "gpu": 8}]
    plan = decide(cluster(gang, vision={"gpu": 16}))
    assert plan.bundles == ()
    assert list(blockers(plan, "v1")) == [Reason.EXCEEDS_POOL_MAX]


def test_quota_group_limit_includes_allocations_in_all_pools() -> None:
    plan = decide(
        cluster(
            workload("v1", "vision", 6, "cloud", "c0"),
            workload("v2", "vision", 4, "metal"),
            vision={"gpu": 8, "limit": {"gpu": 8}},
        )
    )
    assert plan.bundles == ()
    assert blockers(plan, "v2") == {
        Reason.PROJECT_LIMIT: "Project vision is limited to 8 GPUs: 6 allocated, 4 requested. "
        "vision has 6 of its 8 GPUs allocated across h100: 6 in cloud."
    }


def test_group_quota_includes_non_preemptible_workloads_in_all_pools() -> None:
    plan = decide(
        cluster(
            workload("v1", "vision", 6, "cloud", "c0", preemptible=False),
            workload("v2", "vision", 4, "metal", preemptible=False),
            vision={"gpu": 8},
        )
    )
    assert plan.bundles == ()
    assert blockers(plan, "v2")[Reason.NON_PREEMPTIBLE_OVER_QUOTA] == (
        "Non-preemptible workloads must fit in the quota of vision (8 GPUs): 6 allocated to them, "
        "4 requested. vision has 6 of its 8 GPUs allocated across h100: 6 in cloud."
    )


def test_preemptible_workloads_in_other_pools_do_not_block_a_non_preemptible_workload() -> None:
    plan = decide(
        cluster(
            workload("v1", "vision", 8, "cloud", "c0"),
            workload("v2", "vision", 8, "metal", preemptible=False),
            vision={"gpu": 8},
        )
    )
    assert outcome(plan) == [("start", "v2", "metal")]


def test_borrowing_in_one_pool_makes_allocations_in_another_pool_reclaimable() -> None:
    snapshot = cluster(
        workload("v1", "vision", 4, "cloud", "c0"),
        workload("v2", "vision", 4, "cloud", "c0"),
        workload("v3", "vision", 4, "metal", "m0"),
        workload("n1", "nlp", 4, "cloud"),
        vision={"gpu": 8, "weight": 0},
        nlp={"gpu": 4, "weight": 0},
    )
    assert outcome(decide(snapshot)) == [("reclaim", "n1", "cloud")]


def test_demand_in_two_pools_stays_within_the_quota_group_limit() -> None:
    document = snapshot_to_scenario(
        cluster(
            workload("n1", "nlp", 8, "cloud", "c0", preemptible=False),
            workload("n2", "nlp", 8, "metal", "m0", preemptible=False),
            workload("v1", "vision", 8, "cloud"),
            workload("v2", "vision", 8, "metal"),
            vision={"gpu": 8, "limit": {"gpu": 8}},
            nlp={"gpu": 16},
        )
    )
    for pool in document["pools"]:
        pool["nodes"] = {"max": 4}
    plan = decide(load(document).snapshot)
    assert [demand.nodes_wanted for demand in plan.demand] == [1, 0]


def test_allocations_in_a_skipped_pool_count_towards_the_group_limit() -> None:
    snapshot = cluster(
        workload("v1", "vision", 6, "cloud", "c0"),
        workload("v2", "vision", 4, "metal"),
        vision={"gpu": 8, "limit": {"gpu": 8}},
    )
    plan = decide(without_pools(snapshot, {"cloud"}))
    assert plan.bundles == ()
    assert Reason.PROJECT_LIMIT in blockers(plan, "v2")


def test_department_quota_applies_across_all_pools_of_the_quota_group() -> None:
    document = snapshot_to_scenario(
        cluster(
            workload("v1", "vision", 6, "cloud", "c0", preemptible=False),
            workload("v2", "vision", 4, "metal", preemptible=False),
            vision={"gpu": None},
        )
    )
    document["departments"][0]["quotas"] = {"h100": {"gpu": 8}}
    plan = decide(load(document).snapshot)
    assert Reason.DEPARTMENT_OVERSOLD in blockers(plan, "v2")


@pytest.mark.parametrize(
    ("metal", "cloud", "started"),
    [
        ({}, {}, "in-cloud"),
        ({"submitted": "2025-12-31T22:00:00Z"}, {}, "in-metal"),
        ({"submitted": "2025-12-31T22:00:00Z"}, {"priority": 110}, "in-cloud"),
    ],
    ids=["same time", "earlier", "higher priority"],
)
def test_pool_of_the_projects_first_workload_gets_the_group_quota_first(
    metal: Document, cloud: Document, started: str
) -> None:
    fixed: Document = {"preemptible": False, "priority": 100, "submitted": "2025-12-31T23:00:00Z"}
    plan = decide(
        cluster(
            workload("in-metal", "vision", 8, "metal", **(fixed | metal)),
            workload("in-cloud", "vision", 8, "cloud", **(fixed | cloud)),
            vision={"gpu": 8},
        )
    )
    assert [bundle.workload for bundle in plan.bundles] == [started]
