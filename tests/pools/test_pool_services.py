"""Tests for creating, changing and deleting pools and nodes."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from berth.core.errors import Conflict, Invalid, PreconditionFailed
from pools import selectors, services
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import NodeState
from projects.models import Audit
from tests.cast import Cast, make_cast
from tests.pools.stage import SYSTEM, Stage, pool

pytestmark = pytest.mark.django_db
shows = pytest.mark.shows


@pytest.fixture
def cast() -> Cast:
    return make_cast()


def rejected_paths(**values: Any) -> list[str]:
    with pytest.raises(Invalid) as error:
        services.create_pool(actor=SYSTEM, **{"name": "small", **values})
    return [problem.path for problem in error.value.problems]


@shows("SKY-02", "SKY-12", "SKY-15", "SKY-17")
@pytest.mark.parametrize(
    ("nodes", "nodes_desired"),
    [(4, 4), ({"min": 8, "desired": 4}, 8), ((2, 16), 2), ({"min": 4, "desired": 2, "max": 16}, 4),
     ({"min": 2, "desired": 6, "max": 16}, 6), ((0, 4), 0)],
)  # fmt: skip
def test_new_pool_requests_its_first_nodes(nodes: object, nodes_desired: int) -> None:
    created_pool = pool(nodes)
    assert (created_pool.nodes_desired, created_pool.version) == (nodes_desired, 1)


@shows("SKY-09", "SKY-18")
def test_error_names_the_invalid_field_and_nothing_is_stored() -> None:
    assert rejected_paths(nodes_min=0) == ["nodes_min"]
    assert rejected_paths(nodes=(4, 2)) == ["nodes.max"]
    assert rejected_paths(nodes={"min": 4, "desired": 5}) == ["nodes.desired"]
    assert rejected_paths(name="Not A Slug", nodes=1) == ["name"]
    for name in ("x" * 41, "with_line", "Large", "-a", ""):
        assert rejected_paths(name=name, nodes=1) == ["name"], "no workload document could name the pool"
    assert rejected_paths(nodes=1, nodes_desired=3) == ["nodes_desired"]
    assert rejected_paths(nodes=1, colour="red") == ["colour"]
    assert rejected_paths(nodes=1, provider="moon") == ["provider"]
    assert rejected_paths(nodes=1, cpu_milli=-1) == ["cpu_milli"]
    assert rejected_paths(nodes=1, labels={"rack": 1}) == ["labels"]
    assert rejected_paths(nodes=1, taints=[{"key": "a"}, {"value": "b"}]) == ["taints[1]"]
    assert rejected_paths(nodes=1, topology=["zone", ""]) == ["topology"]
    assert not NodePool.objects.exists()


def test_database_constraints_reject_invalid_rows() -> None:
    created_pool = pool((1, 4))
    for values in (
        {"nodes_desired": 5}, {"nodes_max": 0}, {"nodes_min": 5}, {"ready_threshold": 5},
        {"ready_threshold": 0},
        {"nodes_min": 0, "nodes_max": None}, {"node_placement": "heap"}, {"half_life": 0}, {"k": -1.0},
    ):  # fmt: skip
        with pytest.raises(IntegrityError), transaction.atomic():
            NodePool.objects.filter(pk=created_pool.pk).update(**values)


def test_scaling_history_is_append_only() -> None:
    stage = Stage(pool(1))
    stage.reconcile()
    for change in (
        lambda: ScalingEvent.objects.all().delete(),
        lambda: ScalingEvent.objects.update(reason="another reason"),
    ):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            change()


def test_pool_edit_increments_the_version_and_is_audited(cast: Cast) -> None:
    created_pool = services.edit_pool(
        actor=cast.alice, pool=cast.pool, changes={"nodes": (1, 3), "drain_timeout": 5}, version=1
    )
    assert (
        created_pool.nodes_min,
        created_pool.nodes_max,
        created_pool.drain_timeout,
        created_pool.version,
    ) == (1, 3, 5, 2)
    assert created_pool.nodes_desired == 1, "within the new limits"
    row = Audit.objects.get(object_type="nodepool")
    assert (row.actor, row.action, row.object_name) == ("alice", "edit", "local")
    assert row.after == {"nodes_min": 1, "nodes_max": 3, "drain_timeout": 5, "nodes_desired": 1}
    with pytest.raises(PreconditionFailed):
        services.edit_pool(actor=cast.alice, pool=cast.pool, changes={"drain_timeout": 9}, version=1)


@pytest.mark.heavy
def test_existing_nodes_keep_their_gpu_count_after_a_pool_edit() -> None:
    stage = Stage(pool((0, 4)))
    stage.resize(1)
    stage.reconcile()
    services.edit_pool(actor=SYSTEM, pool=stage.pool, changes={"gpus_per_node": 4})
    stage.resize(2)
    stage.reconcile()
    assert [node.gpus for node in selectors.nodes()] == [2, 4]


def test_provider_of_a_pool_with_nodes_cannot_be_changed() -> None:
    stage = Stage(pool(1))
    services.edit_pool(actor=SYSTEM, pool=stage.pool, changes={"runtime": "local"})
    stage.reconcile()
    with pytest.raises(Conflict, match="has nodes"):
        services.edit_pool(actor=SYSTEM, pool=stage.pool, changes={"provider": "local"})


def test_only_an_unused_pool_can_be_deleted() -> None:
    services.delete_pool(actor=SYSTEM, pool=pool((0, 2)))
    assert not NodePool.objects.exists()
    stage = Stage(pool((0, 2)))
    stage.resize(1)
    stage.settle()
    with pytest.raises(Conflict, match="history"):
        services.delete_pool(actor=SYSTEM, pool=stage.pool)


def test_desired_nodes_must_be_within_limits() -> None:
    elastic = pool((1, 4))
    assert services.set_nodes_desired(actor=SYSTEM, pool=elastic, nodes_desired=3).nodes_desired == 3
    for nodes_desired in (0, 5):
        with pytest.raises(Invalid):
            services.set_nodes_desired(actor=SYSTEM, pool=elastic, nodes_desired=nodes_desired)
    fixed = services.create_pool(actor=SYSTEM, name="fixed", nodes=2)
    with pytest.raises(Invalid):
        services.set_nodes_desired(actor=SYSTEM, pool=fixed, nodes_desired=1)


def test_concurrent_changes_to_a_node_conflict() -> None:
    stage = Stage(pool(1))
    stage.reconcile()
    one, other = stage.node(0), stage.node(0)
    services.drain_node(actor=SYSTEM, node=one)
    with pytest.raises(Conflict, match="is draining"):
        services.cordon_node(actor=SYSTEM, node=other)
    assert services.mark_node_emptied(one, at=stage.now)
    assert not services.mark_node_emptied(other, at=stage.now)


@pytest.mark.heavy
def test_pool_query_counts_nodes_by_state() -> None:
    stage = Stage(pool((0, 4)))
    stage.resize(3)
    stage.reconcile()
    services.drain_node(actor=SYSTEM, node=stage.node(2))
    Node.objects.filter(ordinal=1).update(state=NodeState.BOOTING)
    seen = selectors.pools().get()
    counted = {name: getattr(seen, f"nodes_{name}") for name in ("ready", "pending", "draining")}
    assert counted == {"ready": 1, "pending": 1, "draining": 1}
    assert vars(seen)["gpus_ready"] == 4
    assert selectors.scaling_events(seen)[0].kind == "drain"
    begun = stage.node(2).drain_started_at
    assert begun is not None
    assert not selectors.overdue_drains(begun + timedelta(seconds=599))
    assert [node.ordinal for node in selectors.overdue_drains(begun + timedelta(seconds=600))] == [2]
