"""Tests that a pool releases nodes that it does not need, whether empty or underutilized."""

from typing import Any

import pytest

from berth.db.loops import crash_points
from pools import services
from pools.models import Node, NodePool, ScalingEvent
from pools.reconciler import reconcile
from projects.models import Phase, Workload
from scheduler.loop.reconcile.release_nodes import SEARCH_INTERVAL
from scheduler.models import Cycle, Eviction, Reservation
from tests.cast import make_cast
from tests.fakes.provider import FakeProvider
from tests.scheduler.stage import Stage
from tests.support.crashes import killed_at, listening
from tests.support.present import present

HOUR = 3600


class PoolStage(Stage):
    """A stage with a pool that an in-memory provider scales up and down."""

    provider: FakeProvider

    def nodes(self) -> dict[int, str]:
        living = Node.objects.filter(pool=self.cast.pool).exclude(state="ended").order_by("ordinal")
        return {node.ordinal: node.state for node in living}

    def pool(self, **changes: Any) -> NodePool:
        pool = NodePool.objects.get(pk=self.cast.pool.pk)
        return services.edit_pool(actor=self.cast.alice, pool=pool, changes=changes) if changes else pool

    def on(self, workload: Workload) -> list[int]:
        live = self.pods(workload, "starting", "running")
        return [pod.node.ordinal for pod in live]

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.tick(5, seconds=1)


@pytest.fixture
def stage(transactional_db: None) -> PoolStage:
    """Create three nodes with two GPUs each. Workloads are spread over them."""
    made = PoolStage(make_cast())
    made.provider = FakeProvider()
    made.loop.reconcile_pool = lambda pool, now, held_lease, work: reconcile(
        pool.pk, provider=made.provider, now=now, work_to_lose=work
    )
    made.quota(made.cast.research, 6)
    made.quota(made.cast.vision, 6)
    made.pool(nodes=(1, 4), node_placement="spread", gpus_per_node=2, autoscale_idle_timeout=10**6)
    NodePool.objects.filter(pk=made.cast.pool.pk).update(nodes_desired=3)
    for _ in range(2):
        made.loop.reconcile_pool(made.pool(), made.clock.now(), made.loop.context.held_lease, {})
        made.clock.advance(20)
    return made


def submit_one_per_node(stage: PoolStage, **more: Any) -> list[Workload]:
    role = {"name": "worker", "replicas": 1, "gpu": 1}
    workloads = [stage.submit(name, roles=[role], **more) for name in ("a", "b", "c")]
    stage.tick(3, seconds=1)
    assert [stage.on(workload) for workload in workloads] == [[0], [1], [2]]
    return workloads


def test_paused_pools_and_pools_without_a_policy_release_no_nodes(stage: PoolStage) -> None:
    submit_one_per_node(stage)
    stage.pass_time(HOUR / 4)
    stage.pool(node_consolidation="when_underutilized")
    services.pause_pool(actor=stage.cast.alice, pool=stage.pool())
    stage.pass_time(HOUR / 4)
    assert stage.nodes() == dict.fromkeys(range(3), "ready")


def test_underutilized_node_is_drained_and_released_and_each_move_is_audited(stage: PoolStage) -> None:
    a, b, c = submit_one_per_node(stage)
    stage.pool(node_consolidation="when_underutilized")
    stage.pass_time(400)
    assert stage.pool().nodes_desired == 2
    assert stage.nodes() == {0: "ready", 1: "ready"}
    assert sorted(ordinal for workload in (a, b, c) for ordinal in stage.on(workload)) in (
        [0, 0, 1],
        [0, 1, 1],
    )
    assert [stage.phase(workload) for workload in (a, b, c)] == [Phase.RUNNING] * 3
    assert not Reservation.objects.exists()
    assert {i.instance_id for i in stage.provider.living()} == {
        node.instance_id for node in Node.objects.exclude(state="ended")
    }
    assert_move_is_audited_with_its_cycle_and_reason()


def assert_move_is_audited_with_its_cycle_and_reason() -> None:
    (row,) = Eviction.objects.all()
    assert (row.kind, row.workload_name, row.entire_workload, row.preemptor_name) == (
        "consolidate",
        "c",
        False,
        "",
    )
    assert row.rule == "moved to release node local-2: its workloads fit on other nodes"
    assert [queue["queue"] for queue in row.numbers["victim"]] == ["vision", "research"]
    cycle = Cycle.objects.get(pk=present(row.cycle))
    assert (cycle.trigger, cycle.applied, cycle.evictions) == ("release nodes", 1, 1)
    event = ScalingEvent.objects.filter(node__ordinal=2, kind="drain").get()
    assert event.reason == "the node's workloads fit on other nodes: 1 pod of 1 workload moved off local-2"
    wanted = ScalingEvent.objects.filter(kind="autoscale", data__rule="underutilized").get()
    assert (wanted.before, wanted.after) == (3, 2)


@pytest.mark.heavy
def test_nodes_are_released_one_at_a_time(stage: PoolStage) -> None:
    # Three GPUs fit on two nodes of two GPUs, so no second node can be released.
    a, _, c = submit_one_per_node(stage)
    stage.finish(c)
    stage.pool(node_consolidation="when_underutilized", node_consolidation_after=300)
    stage.tick(3, seconds=20)
    assert stage.pool().nodes_desired == 3  # a workload ended there recently
    stage.pass_time(301)
    assert stage.pool().nodes_desired == 2
    stage.tick(2, seconds=60)
    assert stage.pool().nodes_desired == 2
    stage.pass_time(301)
    assert stage.nodes() == {0: "ready"}
    assert stage.on(a) == [0]


@pytest.mark.heavy
def test_when_empty_policy_releases_nodes_without_moving_workloads(stage: PoolStage) -> None:
    _, b, _ = submit_one_per_node(stage)
    stage.pool(node_consolidation="when_empty")
    stage.pass_time(400)
    assert stage.pool().nodes_desired == 3
    stage.finish(b)
    stage.tick(2)
    stage.pass_time(301)
    assert stage.nodes() == {0: "ready", 2: "ready"}
    assert not Eviction.objects.exists()
    (row,) = ScalingEvent.objects.filter(kind="autoscale", data__rule="empty")
    assert row.reason == "nothing runs on 1 node: local-1"


@pytest.mark.heavy
def test_node_release_is_prevented_by_a_budget_a_minimum_runtime_or_a_minimum_node_count(
    stage: PoolStage,
) -> None:
    submit_one_per_node(stage)
    window = {"nodes": 0, "schedule": "0 12 * * *", "duration": "2h", "zone": "UTC"}
    for changes in (
        {"disruption_budgets": [{"nodes": 0}]},
        {"disruption_budgets": [{"nodes": "0%", "reasons": ["underutilized"]}]},
        {"disruption_budgets": [window]},
        {"preempt_min_runtime": 2 * HOUR},
        {"node_consolidation_after": 2 * HOUR},
        {"nodes": (3, 4)},
    ):
        before = {name: getattr(stage.pool(), name) for name in changes if name != "nodes"}
        stage.pool(node_consolidation="when_underutilized", **changes)
        stage.pass_time(500)
        assert stage.pool().nodes_desired == 3, changes
        stage.pool(node_consolidation="never", nodes=(1, 4), **before)
    assert not Eviction.objects.exists()


@pytest.mark.heavy
def test_nodes_are_released_once_the_budget_window_has_ended(stage: PoolStage) -> None:
    submit_one_per_node(stage)
    window = {"nodes": 0, "schedule": "0 12 * * *", "duration": "20m", "zone": "UTC"}
    stage.pool(node_consolidation="when_underutilized", disruption_budgets=[window])
    stage.pass_time(600)
    assert stage.pool().nodes_desired == 3
    stage.pass_time(800)
    assert stage.pool().nodes_desired == 2


@pytest.mark.heavy
def test_node_with_a_non_preemptible_workload_is_not_released(stage: PoolStage) -> None:
    submit_one_per_node(stage, preemptible=False)
    stage.pool(node_consolidation="when_underutilized")
    stage.pass_time(HOUR / 2)
    assert stage.pool().nodes_desired == 3


@pytest.mark.heavy
def test_no_node_is_released_while_a_workload_is_pending(stage: PoolStage) -> None:
    submit_one_per_node(stage)
    stage.pool(node_consolidation="when_underutilized", nodes=(1, 3))
    stage.submit("big", roles=[{"name": "worker", "replicas": 2, "gpu": 2}])
    stage.pass_time(400)
    assert stage.pool().nodes_desired == 3


def test_crash_during_a_release_leaves_no_partial_state(stage: PoolStage) -> None:
    submit_one_per_node(stage)
    stage.pool(node_consolidation="when_underutilized")
    for where in ("release.drained", "commit.evicted", "release.before_end"):
        with killed_at(where):
            stage.pass_time(400)
        assert stage.pool().nodes_desired == 3
        assert stage.nodes() == dict.fromkeys(range(3), "ready")
        assert not Eviction.objects.exists()
    stage.pass_time(SEARCH_INTERVAL.total_seconds())
    assert stage.nodes() == {0: "ready", 1: "ready"}


@pytest.mark.heavy
def test_concurrent_change_during_a_release_prevents_its_evictions(stage: PoolStage) -> None:
    # The move is checked again under a lock, so a node cordoned since the decision accepts no workload.
    submit_one_per_node(stage)
    stage.pool(node_consolidation="when_underutilized")

    def cordon(here: str) -> None:
        if here == "release.drained":
            crash_points.set_listener(None)
            Node.objects.filter(ordinal__in=(0, 1), state="ready").update(state="cordoned")

    with listening(cordon):
        stage.pass_time(400)
    assert stage.pool().nodes_desired == 3
    assert not Eviction.objects.exists()
    assert "drain" not in set(ScalingEvent.objects.values_list("kind", flat=True))


@pytest.mark.heavy
def test_new_demand_cancels_the_drain(stage: PoolStage) -> None:
    submit_one_per_node(stage)
    stage.pool(node_consolidation="when_underutilized")
    stage.runtime.stubborn |= {str(pod.pk) for pod in stage.pods(Workload.objects.get(name="c"))}
    stage.clock.advance(400)
    stage.tick(1)
    assert stage.nodes() == {0: "ready", 1: "ready", 2: "draining"}
    stage.submit("more", roles=[{"name": "worker", "replicas": 1, "gpu": 2}])
    stage.tick(3, seconds=2)
    assert stage.nodes()[2] == "ready"
    assert stage.pool().nodes_desired >= 3
