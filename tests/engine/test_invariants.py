"""Tests on random clusters that every plan obeys the invariants.

`BERTH_RANDOM_CLUSTERS=20000` sets the number of clusters per invariant (default: a few dozen).
"""

import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from berth.core.values.amounts import MILLI, RESOURCES
from scheduler.engine.decide import decide
from scheduler.engine.model import PoolQuota, Queue, Snapshot
from scheduler.engine.plan import Plan
from scheduler.simulator import load, snapshot_to_scenario
from scheduler.simulator.simulation import SimulatedCluster
from tests.engine.reference.clusters import clusters
from tests.engine.reference.fair_share import Claimant, fair_shares
from tests.engine.reference.invariants.families import broken_invariants
from tests.engine.reference.invariants.shares import capacity

SHRINK_SECONDS = (
    os.environ.get("BERTH_RANDOM_CLUSTERS_SHRINK") != "no"
)  # search for a smaller counterexample for some minutes
EXAMPLES = int(os.environ.get("BERTH_RANDOM_CLUSTERS", "0"))
Test = TypeVar("Test", bound=Callable[..., None])
UNITS = {"gpu": MILLI, "cpu": 1, "memory_mib": 1}


def on_random_clusters(examples: int) -> Callable[[Test], Test]:
    """Run a test on random clusters. They are the same in every run unless `BERTH_RANDOM_CLUSTERS` is set."""
    return settings(
        max_examples=EXAMPLES or examples,
        deadline=None,
        derandomize=not EXAMPLES,
        database=None,
        phases=[Phase.generate, Phase.shrink] if SHRINK_SECONDS else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def load_snapshot(document: dict[str, Any]) -> tuple[Snapshot, Plan]:
    snapshot = load(document).snapshot
    return snapshot, decide(snapshot)


@on_random_clusters(25)
@given(document=clusters())
def test_plan_satisfies_every_invariant(document: dict[str, Any]) -> None:
    assert broken_invariants(*load_snapshot(document)) == []


@on_random_clusters(15)
@given(document=clusters(time_based=True))
def test_time_based_plan_satisfies_every_invariant(document: dict[str, Any]) -> None:
    assert broken_invariants(*load_snapshot(document)) == []


@on_random_clusters(15)
@given(document=clusters(), order=st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_the_order_of_snapshot_entries(document: dict[str, Any], order: Any) -> None:
    snapshot, plan = load_snapshot(document)
    shuffled: dict[str, Any] = {}
    for kind in ("pools", "nodes", "queues", "workloads"):
        listed = list(getattr(snapshot, kind))
        order.shuffle(listed)
        shuffled[kind] = tuple(listed)
    assert decide(snapshot) == plan
    assert decide(replace(snapshot, **shuffled)) == plan


@on_random_clusters(10)
@given(document=clusters())
def test_only_the_order_of_node_names_affects_the_plan(document: dict[str, Any]) -> None:
    _, plan = load_snapshot(document)
    renamed = {node["name"]: f"x-{node['name']}" for node in document["nodes"]}
    for node in document["nodes"]:
        node["name"] = renamed[node["name"]]
    for workload in document["workloads"]:
        for pod in workload.get("pods", ()):
            pod["node"] = renamed[pod["node"]]
    again = decide(load(document).snapshot)
    steps = [[(s.workload, s.role, s.index, renamed[s.node]) for s in b.steps] for b in plan.bundles]
    assert [[(s.workload, s.role, s.index, s.node) for s in b.steps] for b in again.bundles] == steps


@on_random_clusters(15)
@given(document=clusters(quiet=True))
def test_second_plan_on_an_unchanged_cluster_is_empty(document: dict[str, Any]) -> None:
    snapshot, plan = load_snapshot(document)
    world = SimulatedCluster(snapshot)
    world.apply_plan(plan)
    assert decide(world.snapshot()).bundles == ()


@on_random_clusters(15)
@given(document=clusters(quiet=True, time_based=True))
def test_second_plan_with_time_based_shares_and_unchanged_usage_is_empty(document: dict[str, Any]) -> None:
    # Turns change only with time, not with current allocations.
    snapshot, plan = load_snapshot(document)
    world = SimulatedCluster(snapshot)
    world.apply_plan(plan)
    assert decide(world.snapshot()).bundles == ()


@pytest.mark.shows("PAD-32")
@on_random_clusters(10)
@given(document=clusters(quiet=True), limit=st.sampled_from([300, 500, 800]))
def test_second_plan_after_the_cpu_load_limit_was_lowered_is_empty(
    document: dict[str, Any], limit: int
) -> None:
    snapshot, plan = load_snapshot(document)
    world = SimulatedCluster(snapshot)
    world.apply_plan(plan)
    before = world.snapshot()
    pools = tuple(replace(pool, cpu_load_limit=limit) for pool in before.pools)
    lowered = replace(before, pools=pools)
    world = SimulatedCluster(lowered)
    world.apply_plan(decide(lowered))
    assert decide(world.snapshot()).bundles == ()


@on_random_clusters(4)
@given(document=st.one_of(clusters(quiet=True), clusters(quiet=True, time_based=True)))
def test_evictions_eventually_stop_in_an_unchanged_cluster(document: dict[str, Any]) -> None:
    world = SimulatedCluster(load(document).snapshot)
    evictions = []
    for _ in range(40):
        plan = decide(world.snapshot())
        world.apply_plan(plan)
        world.advance(100)
        evictions.append(sum(len(bundle.evictions) for bundle in plan.bundles))
    assert evictions[-10:] == [0] * 10


@on_random_clusters(15)
@given(document=clusters())
def test_stored_cycle_replays_to_the_same_plan(document: dict[str, Any]) -> None:
    snapshot, plan = load_snapshot(document)
    assert decide(load(snapshot_to_scenario(snapshot)).snapshot) == plan
    assert load(snapshot_to_scenario(snapshot)).snapshot == snapshot


@on_random_clusters(10)
@given(document=clusters())
def test_decide_does_not_change_the_snapshot(document: dict[str, Any]) -> None:
    snapshot = load(document).snapshot
    before = repr(snapshot)
    decide(snapshot)
    assert repr(snapshot) == before


# -- shares


def claimant(queue: Queue, pool: str, resource: int, wants: int) -> Claimant:
    pool_quota = queue.pool_quotas.get(pool, PoolQuota())
    grain = 10**9  # measured usage, rounded as finely as in the engine
    return Claimant(
        queue.name,
        pool_quota.quota[resource],
        wants,
        Fraction(str(pool_quota.weights[resource])),
        pool_quota.rank,
        queue.created,
        Fraction(round(pool_quota.usage.fraction_of_parent(resource) * grain), grain),
    )


@on_random_clusters(15)
@given(document=st.one_of(clusters(), clusters(time_based=True)))
def test_fair_shares_equal_the_reference_calculation(document: dict[str, Any]) -> None:
    snapshot, plan = load_snapshot(document)
    reports = {(report.pool, report.queue): report for report in plan.queues}
    for pool in snapshot.pools:
        for parent in (None, *(queue.name for queue in snapshot.queues if queue.parent is None)):
            children = [queue for queue in snapshot.queues if queue.parent == parent]
            for resource, name in enumerate(RESOURCES):
                if parent is None:
                    total = capacity(snapshot, pool.name)[resource]
                else:
                    total = reports[pool.name, parent].share[resource]
                wanted = {q.name: wants(snapshot, reports, q, pool.name, resource) for q in children}
                expected = fair_shares(
                    total,
                    [claimant(queue, pool.name, resource, wanted[queue.name]) for queue in children],
                    unit=UNITS[name],
                    k=Fraction(str(pool.fair_share.k)) if pool.fair_share.time_based else Fraction(0),
                    by_quota=not pool.over_quota_weights,
                )
                shares = {q.name: reports[pool.name, q.name].share[resource] for q in children}
                assert shares == expected, (pool.name, parent, name, total, wanted)


def wants(snapshot: Snapshot, reports: Any, queue: Queue, pool: str, resource: int) -> int:
    """Return the queue's demand: its allocated plus its requested amount. Demand is capped at the queue's
    limit, or at its quota if it may not borrow.
    """
    pool_quota = queue.pool_quotas.get(pool, PoolQuota())
    children = [child for child in snapshot.queues if child.parent == queue.name]
    requested: int = reports[pool, queue.name].requested[resource]
    if children:
        requested = sum(wants(snapshot, reports, child, pool, resource) for child in children)
    bounds = [pool_quota.limit[resource]]
    if not pool_quota.over_quota:
        bounds.append(pool_quota.quota[resource])
    return min([requested, *(bound for bound in bounds if bound is not None)])


claims = st.builds(
    Claimant,
    name=st.just(""),
    quota=st.one_of(st.none(), st.integers(0, 12).map(lambda n: n * 500)),
    wants=st.integers(0, 16).map(lambda n: n * 500),
    weight=st.integers(0, 4).map(Fraction),
    rank=st.integers(0, 1),
    created=st.integers(0, 2),
    usage=st.integers(0, 4).map(lambda n: Fraction(n, 4)),
)


@on_random_clusters(25)
@given(
    drawn=st.lists(claims, min_size=1, max_size=4),
    total=st.integers(0, 20).map(lambda n: n * 500),
    k=st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(2)]),
    better=st.sampled_from(["weight", "rank", "quota"]),
)
def test_raising_weight_rank_or_quota_never_lowers_the_fair_share(
    drawn: list[Claimant], total: int, k: Fraction, better: str
) -> None:
    # The test uses the reference calculation, whose results equal the engine's.
    claimants = [replace(claim, name=f"q{number}") for number, claim in enumerate(drawn)]
    first = claimants[0]
    if better == "weight":
        improved = replace(first, weight=first.weight + 1)
    elif better == "rank":
        improved = replace(first, rank=first.rank + 1)
    else:
        improved = replace(first, quota=None if first.quota is None else first.quota + 1500)
    before = fair_shares(total, claimants, unit=MILLI, k=k)[first.name]
    assert fair_shares(total, [improved, *claimants[1:]], unit=MILLI, k=k)[first.name] >= before


@on_random_clusters(25)
@given(drawn=st.lists(claims, min_size=1, max_size=4), total=st.integers(0, 20).map(lambda n: n * 500))
def test_fair_shares_sum_to_the_capacity_if_demand_is_sufficient(drawn: list[Claimant], total: int) -> None:
    claimants = [
        replace(claim, name=f"q{number}", weight=claim.weight + 1) for number, claim in enumerate(drawn)
    ]
    shares = fair_shares(total, claimants, unit=MILLI)
    assert sum(shares.values()) == min(total, sum(claim.wants for claim in claimants))
