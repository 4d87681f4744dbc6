"""Tests that pools survive and report faults of providers, machines and clocks."""

from datetime import timedelta

import pytest

from berth.core.errors import Conflict
from pools import selectors, services
from pools.models import Node, ScalingEvent
from pools.models.node import NodeState
from pools.providers.base import Instance, InstanceState, Interruption, ProviderErrorKind
from tests.fakes.provider import ExtraInstances, Fail
from tests.pools.stage import SYSTEM, Stage, pool

pytestmark = pytest.mark.django_db
shows = pytest.mark.shows


@shows("SKY-59")
def test_partial_launch_is_accepted_and_the_missing_nodes_are_requested() -> None:
    stage = Stage(pool(4))
    stage.provider.next("provision", ExtraInstances(more=-3))
    stage.reconcile()
    assert len(stage.states()) == 4
    counts = [call.count for name, call in stage.provider.calls if name == "provision"]  # type: ignore[attr-defined]
    assert counts == [4, 3]
    stage.check()


@pytest.mark.heavy
def test_surplus_instances_are_terminated() -> None:
    stage = Stage(pool(2))
    stage.provider.next("provision", ExtraInstances(more=2))
    stage.reconcile()
    assert len(stage.provider.living()) == 2
    assert "surplus" in stage.history()
    stage.check()


@shows("SKY-61", "SKY-62", "SKY-76")
def test_provider_error_is_reported_and_the_call_is_retried_at_the_next_tick() -> None:
    stage = Stage(pool(2))
    raised = Fail(ProviderErrorKind.QUOTA, "the account may have 0 more")
    stage.provider.next("provision", raised, raised)
    stage.reconcile()
    stage.pass_time(14)
    stage.reconcile()
    assert stage.provider.count("provision") == 1
    stage.pool.refresh_from_db()
    assert stage.pool.last_error == "could not request 2 nodes (quota): the account may have 0 more"
    stage.pass_time(1)
    stage.reconcile()
    assert stage.provider.count("provision") == 2
    assert stage.history() == ["error"], "the same error is recorded once"
    stage.pass_time(15)
    stage.reconcile()
    stage.pool.refresh_from_db()
    assert stage.pool.last_error == ""
    stage.check()


@pytest.mark.heavy
def test_provider_error_is_cleared_once_no_request_is_outstanding() -> None:
    stage = Stage(pool((0, 4)))
    stage.resize(2)
    stage.provider.next("provision", *[Fail(ProviderErrorKind.CAPACITY, "none is free")] * 9)
    stage.reconcile()
    stage.resize(0)
    for _ in range(3):
        stage.pass_time(15)
        stage.reconcile()
    stage.pool.refresh_from_db()
    assert stage.pool.last_error == ""
    stage.check()


@pytest.mark.heavy
def test_successful_listing_clears_the_error_of_a_failed_listing() -> None:
    stage = Stage(pool(2))
    stage.settle()
    stage.provider.next("list_instances", Fail(ProviderErrorKind.THROTTLED, "too many calls"))
    stage.pass_time(15)
    stage.reconcile()
    stage.pool.refresh_from_db()
    assert stage.pool.last_error == "could not list instances (throttled): too many calls"
    stage.pass_time(15)
    stage.reconcile()
    stage.pool.refresh_from_db()
    assert stage.pool.last_error == ""


@shows("SKY-75", "SKY-77")
def test_provider_call_with_a_lost_response_is_retried_without_duplicates() -> None:
    stage = Stage(pool(3))
    stage.provider.next("provision", Fail(ProviderErrorKind.TIMEOUT, after=True))
    stage.reconcile()
    assert stage.states() == {}
    assert len(stage.provider.living()) == 3
    stage.pass_time(15)
    stage.reconcile()
    assert len(stage.provider.living()) == 3
    assert stage.history()[-4:].count("adopted") == 1
    stage.check()


@pytest.mark.heavy
@shows("SKY-58")
def test_unneeded_instances_are_terminated_after_a_lost_response() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(3)
    stage.provider.next("provision", Fail(ProviderErrorKind.TIMEOUT, after=True))
    stage.reconcile()
    stage.resize(0)
    stage.settle()
    assert stage.provider.living() == ()
    assert stage.provider.count("provision") == 1
    assert stage.history().count("orphan") == 3
    assert stage.history()[-3:] == ["terminate"] * 3


@shows("SKY-69")
def test_failed_termination_is_retried() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(2)
    stage.reconcile()
    stage.resize(1)
    stage.reconcile()
    services.mark_node_emptied(stage.node(1))
    stage.provider.next("terminate", Fail(ProviderErrorKind.THROTTLED, "slow down"))
    stage.reconcile()
    assert stage.states() == {0: "ready"}, "the pool does not wait for the termination"
    assert len(stage.provider.living()) == 2
    assert stage.history()[-1] == "error"
    stage.pass_time(15)
    stage.reconcile()
    assert len(stage.provider.living()) == 1
    stage.check()


def test_unknown_instance_is_terminated() -> None:
    stage = Stage(pool(1))
    stage.reconcile()
    stage.provider.appear("small", Instance("i-stray", 9, InstanceState.READY, "unknown"))
    stage.provider.appear("other", Instance("i-theirs", 0, InstanceState.READY, "unknown"))
    stage.pass_time(15)
    stage.reconcile()
    assert len(stage.provider.living("small")) == 2, "an admin may want to inspect the instance first"
    assert stage.history()[-1] == "orphan"
    stage.pass_time(59)
    stage.reconcile()
    assert len(stage.provider.living("small")) == 2
    stage.provider.next("terminate", Fail(ProviderErrorKind.THROTTLED))
    for _ in range(2):
        stage.pass_time(15)
        stage.reconcile()
    assert {instance.instance_id for instance in stage.provider.living("other")} == {"i-theirs"}
    assert len(stage.provider.living("small")) == 1
    assert stage.history()[-3:] == ["orphan", "terminate", "error"]


@pytest.mark.heavy
def test_unknown_instances_are_not_terminated_while_paused() -> None:
    # With a restored older database, instances that are missing from it must not be terminated.
    stage = Stage(pool(1))
    stage.reconcile()
    services.pause_pool(actor=SYSTEM, pool=stage.pool)
    stage.provider.appear("small", Instance("i-stray", 9, InstanceState.READY, "unknown"))
    for _ in range(3):
        stage.pass_time(60)
        stage.reconcile()
    assert len(stage.provider.living("small")) == 2


@pytest.mark.parametrize("nodes_desired", [1, 3])
def test_lost_head_node_is_replaced_even_if_enough_nodes_remain(nodes_desired: int) -> None:
    # Some pools cannot run any workload without node 0.
    stage = Stage(pool((0, 8)))
    stage.resize(4)
    stage.reconcile()
    stage.resize(nodes_desired)
    stage.provider.vanish(stage.node(0).instance_id)
    stage.pass_time(15)
    stage.reconcile()
    assert stage.states()[0] == "ready"
    assert stage.node(0).instance_id in {instance.instance_id for instance in stage.provider.living()}
    stage.settle()
    assert 0 in stage.states()
    assert "lost" in stage.history()
    stage.check()


def test_missing_head_node_is_requested_again_until_it_joins() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(3)
    stage.reconcile()
    stage.resize(2)
    stage.provider.vanish(stage.node(0).instance_id)
    stage.provider.next("provision", Fail(ProviderErrorKind.CAPACITY, "no such machine"))
    stage.pass_time(15)
    stage.reconcile()
    assert sorted(stage.states()) == [1, 2]
    stage.pass_time(15)
    stage.reconcile()
    stage.settle()
    assert 0 in stage.states()
    assert stage.history().count("error") == 1
    stage.check()


def test_interrupted_machine_is_drained_and_replaced_immediately() -> None:
    stage = Stage(pool((0, 8), drain_timeout=600))
    stage.resize(2)
    stage.reconcile()
    interruption_at = stage.now + timedelta(seconds=15 + 110)
    stage.provider.interrupt(stage.node(1).instance_id, Interruption("reclaimed", interruption_at))
    stage.pass_time(15)
    stage.reconcile()
    assert stage.states() == {0: "ready", 1: "draining", 2: "ready"}
    node = stage.node(1)
    assert (node.interruption_at, node.drain_reason) == (interruption_at, "reclaimed")
    interruption = ScalingEvent.objects.get(kind="interruption")
    assert (interruption.node, interruption.data) == (node, {"interruption_at": interruption_at.isoformat()})
    assert not selectors.overdue_drains(interruption_at - timedelta(seconds=61)).exists()
    assert selectors.overdue_drains(interruption_at - timedelta(seconds=60)).get() == node
    stage.resize(6)
    stage.pass_time(15)
    stage.reconcile()
    assert stage.states()[1] == "draining", "an interrupted machine leaves, whatever the desired number"
    assert stage.history().count("interruption") == 1
    stage.settle()
    stage.check()


@pytest.mark.heavy
def test_draining_node_gets_the_deadline_of_an_interruption() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(3)
    stage.reconcile()
    stage.resize(2)
    stage.reconcile()
    interruption_at = stage.now + timedelta(seconds=120)
    stage.provider.interrupt(stage.node(2).instance_id, Interruption("reclaimed", interruption_at))
    stage.pass_time(15)
    stage.reconcile()
    assert (stage.node(2).interruption_at, stage.node(2).drained_by_scaling) == (interruption_at, False)
    stage.resize(3)
    stage.reconcile()
    assert stage.states() == {0: "ready", 1: "ready", 2: "draining", 3: "ready"}


@pytest.mark.heavy
def test_overdue_drain_is_reported_once() -> None:
    stage = Stage(pool((0, 8), drain_timeout=300))
    stage.resize(2)
    stage.reconcile()
    stage.resize(1)
    for _ in range(80):
        stage.reconcile()
        stage.pass_time(15)
    assert stage.states() == {0: "ready", 1: "draining"}
    event = ScalingEvent.objects.get(kind="drain", data__overdue=True)
    assert event.reason == "draining for 900 s; pods are still running"
    assert stage.nodes_desired == 1


@pytest.mark.heavy
@shows("SKY-78")
def test_node_lost_while_draining_is_terminated() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(2)
    stage.reconcile()
    stage.resize(1)
    stage.reconcile()
    stage.provider.vanish(stage.node(1).instance_id)
    stage.settle()
    assert stage.states() == {0: "ready"}
    stage.check()


def test_failed_listing_does_not_mark_nodes_lost() -> None:
    stage = Stage(pool(2))
    stage.reconcile()
    stage.provider.next("list_instances", Fail(ProviderErrorKind.CREDENTIALS, "expired"))
    stage.pass_time(15)
    stage.reconcile()
    assert stage.states() == dict.fromkeys(range(2), "ready")
    assert stage.history()[-1] == "error"


def test_no_node_is_stopped_if_the_clock_is_set_back() -> None:
    stage = Stage(pool(2))
    stage.provider.next("provision", Fail(ProviderErrorKind.CAPACITY))
    stage.reconcile()
    stage.pass_time(-10 * 24 * 3600)
    stage.reconcile()
    stage.check()


@pytest.mark.heavy
def test_clock_jump_does_not_end_ready_nodes() -> None:
    stage = Stage(pool(2))
    stage.reconcile()
    before = {instance.instance_id for instance in stage.provider.living()}
    stage.pass_time(10 * 24 * 3600)
    stage.reconcile()
    assert {instance.instance_id for instance in stage.provider.living()} == before
    assert stage.history() == ["ready", "ready", "provision"]
    stage.check()


@pytest.mark.heavy
def test_paused_pool_keeps_its_size() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(2)
    stage.reconcile()
    services.pause_pool(actor=SYSTEM, pool=stage.pool)
    stage.resize(5)
    assert not stage.report(queued=6)
    stage.reconcile()
    assert len(stage.states()) == 2
    services.resume_pool(actor=SYSTEM, pool=stage.pool)
    stage.reconcile()
    assert len(stage.states()) == 5


def test_terminated_node_is_replaced() -> None:
    stage = Stage(pool(2))
    stage.reconcile()
    services.terminate_node(actor=SYSTEM, node=stage.node(0), reason="smokes")
    assert stage.states()[0] == "lost"
    stage.reconcile()
    assert stage.states() == {0: "ready", 1: "ready"}
    assert Node.objects.filter(state=NodeState.ENDED).get().ordinal == 0
    stage.check()
    with pytest.raises(Conflict):
        services.cordon_node(actor=SYSTEM, node=Node.objects.get(state=NodeState.ENDED))
