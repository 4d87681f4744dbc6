"""Tests for an EC2 reconciler that is killed between any two steps."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction

from pools.models import Node, ScalingEvent
from pools.models.node import NodeState
from tests.pools.aws.ec2_account import IMAGE_PARAMETER, REGION, TWO_GPUS, Ec2Account, ec2_account, subnets
from tests.pools.aws.ec2_proxy import Fault
from tests.pools.reconciler.test_reconciler_killed import KillAt
from tests.pools.stage import Killed, Stage, pool

pytestmark = pytest.mark.django_db
shows = pytest.mark.shows


@dataclass
class Ec2Stage(Stage):
    """A stage whose provider is EC2, with the stage's clock and kill points."""

    provider: Any = None  # an AwsProvider, which is no FakeProvider
    place: Any = None

    def join(self) -> None:
        """Make every running machine join, as its user data does."""
        Node.objects.filter(state__in=["requested", "booting"]).update(joined_at=self.now)

    def check(self) -> None:
        nodes = Node.objects.filter(pool=self.pool).exclude(state=NodeState.ENDED)
        assert {node.instance_id for node in nodes} == self.place.proxy.living()
        assert len(nodes) == self.nodes_desired


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2Account]:
    with ec2_account(monkeypatch) as ec2:
        yield ec2


def ec2_stage(
    place: Ec2Account, nodes: object = (0, 8), *, provider: Any = None, **settings: Any
) -> Ec2Stage:
    values = {
        "region": REGION, "instance_types": [TWO_GPUS], "subnets": subnets()[:1],
        "image_parameter": IMAGE_PARAMETER, **settings,
    }  # fmt: skip
    ec2_pool = pool(nodes, provider="aws", provider_settings=values)
    return Ec2Stage(ec2_pool, provider or place.provider(**settings), place=place)


@shows("SKY-75", "SKY-77", "SKY-87")
@pytest.mark.heavy
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lose_response", [False, True])
def test_reconciler_killed_at_any_step_of_an_ec2_launch_recovers(
    place: Ec2Account, lose_response: bool
) -> None:
    places = set()
    provider = place.provider()
    for n in range(1, 40):
        with transaction.atomic():
            provider.installation = f"killed-{place.installation}-{n}"
            place.proxy.launched = {"spot": [], "on-demand": []}
            stage = ec2_stage(place, provider=provider)
            stage.resize(2)
            if lose_response:
                place.proxy.next("CreateFleet", Fault(after=True))
            stage.kill = killer = KillAt(n)
            with suppress(Killed):
                stage.settle()
            stage.kill = lambda where: None
            stage.settle()
            stage.check()
            launched = len(place.proxy.launched["on-demand"])
            assert launched == 2, f"{launched} machines for an order of 2: killed {killer.where}"
            transaction.set_rollback(True)
        if killer.left > 0:
            break
        places.add(killer.where)
    assert {"before provision", "after provision", "before a commit", "after a commit"} <= places


@pytest.mark.heavy
@shows("SKY-61", "SKY-62")
def test_launch_beyond_the_account_limit_is_retried_each_tick_and_reported_once(place: Ec2Account) -> None:
    stage = ec2_stage(place)
    place.proxy.capacity["on-demand"], place.proxy.short_of = 0, "VcpuLimitExceeded"
    stage.resize(2)
    for _ in range(3):
        stage.reconcile()
        stage.pass_time(15)
    assert place.proxy.count("CreateFleet") == 3
    assert stage.errors() == ["quota"]
    stage.pool.refresh_from_db()
    message = "could not request 2 nodes (quota): VcpuLimitExceeded: no capacity in this test"
    assert stage.pool.last_error == message
    place.proxy.capacity["on-demand"] = None
    stage.settle()
    stage.check()
    stage.pool.refresh_from_db()
    assert stage.pool.last_error == ""


@pytest.mark.heavy
def test_expired_credentials_do_not_stop_running_nodes(place: Ec2Account) -> None:
    stage = ec2_stage(place)
    stage.resize(1)
    stage.settle()
    place.proxy.next("DescribeInstances", Fault("ExpiredToken"))
    stage.pass_time(15)
    stage.reconcile()
    assert stage.states() == {0: "ready"}
    assert stage.errors() == ["credentials"]
    place.proxy.next("DescribeInstances", Fault("ExpiredToken"))
    stage.resize(2)
    stage.pass_time(1)
    stage.reconcile()
    assert stage.states() == {0: "ready"}
    stage.settle()
    assert stage.states() == {0: "ready", 1: "ready"}
    stage.check()


@pytest.mark.heavy
@shows("SKY-59")
def test_partial_launch_is_accepted_and_the_missing_nodes_are_requested(place: Ec2Account) -> None:
    stage = ec2_stage(place)
    place.proxy.capacity["on-demand"] = 2
    stage.resize(3)
    stage.reconcile()
    assert len(stage.states()) == 2
    event = ScalingEvent.objects.get(kind="provision")
    assert event.reason.startswith("2 of 3 nodes provided: InsufficientInstanceCapacity")
    assert stage.errors() == ["capacity"]
    place.proxy.capacity["on-demand"] = None
    stage.settle()
    stage.check()


def test_launch_with_a_lost_response_is_retried_and_its_machines_are_adopted(place: Ec2Account) -> None:
    stage = ec2_stage(place)
    place.proxy.next("CreateFleet", Fault(after=True))
    stage.resize(2)
    stage.reconcile()
    assert (stage.states(), stage.errors()) == ({}, ["timeout"])
    stage.pass_time(15)
    stage.reconcile()
    assert "adopted" in stage.history()
    stage.settle()
    stage.check()
    assert len(place.proxy.launched["on-demand"]) == 2


@pytest.mark.heavy
def test_machine_that_never_joins_is_terminated_and_replaced(place: Ec2Account) -> None:
    stage = ec2_stage(place)
    stage.resize(1)
    stage.reconcile()
    first = stage.node(0).instance_id
    stage.pass_time(stage.pool.boot_timeout - 1)
    stage.reconcile()
    assert stage.states() == {0: "booting"}, "the machine runs but has not joined"
    stage.pass_time(15)
    stage.reconcile()
    assert first not in place.proxy.living()
    assert ScalingEvent.objects.get(kind="lost").reason == "not ready within 900 s"
    stage.settle()
    stage.check()


@pytest.mark.heavy
@shows("SKY-69")
def test_termination_is_retried_until_ec2_has_terminated_the_machine(place: Ec2Account) -> None:
    stage = ec2_stage(place)
    stage.resize(2)
    stage.settle()
    instance_id = stage.node(1).instance_id
    place.proxy.unending.add(instance_id)
    stage.resize(1)
    stage.reconcile()
    stage.empty_drains()
    stage.reconcile()
    assert stage.states() == {0: "ready"}
    assert instance_id in place.proxy.living()
    for _ in range(2):
        stage.pass_time(15)
        stage.reconcile()
    assert place.proxy.count("TerminateInstances") == 3
    place.proxy.unending.clear()
    stage.settle()
    stage.check()


@pytest.mark.heavy
def test_manually_stopped_machine_is_marked_lost_and_terminated(place: Ec2Account) -> None:
    # The volumes of a stopped machine would keep incurring costs.
    stage = ec2_stage(place)
    stage.resize(1)
    stage.settle()
    instance_id = stage.node(0).instance_id
    place.clients().ec2.stop_instances(InstanceIds=[instance_id])
    place.proxy.next("TerminateInstances", Fault("InternalError"), Fault("InternalError"))
    place.proxy.next("TerminateInstances", Fault("InternalError"))
    for _ in range(3):
        stage.pass_time(15)
        stage.reconcile()
        stage.join()
    assert stage.node(0).instance_id != instance_id
    description = place.clients().ec2.describe_instances(InstanceIds=[instance_id])
    assert description["Reservations"][0]["Instances"][0]["State"]["Name"] == "terminated"
    assert "lost" in stage.history()
    stage.check()


@pytest.mark.heavy
def test_interrupted_spot_machine_is_replaced_before_it_terminates(place: Ec2Account) -> None:
    stage = ec2_stage(place, purchase="spot")
    stage.resize(2)
    stage.settle()
    place.proxy.interrupt_spot_machine(stage.node(1).instance_id, stage.now)
    stage.pass_time(15)
    stage.reconcile()
    assert stage.states() == {0: "ready", 1: "draining", 2: "requested"}
    interruption_at = stage.node(1).interruption_at
    assert interruption_at is not None
    assert (interruption_at - stage.now).total_seconds() == pytest.approx(105, abs=1)
    assert ScalingEvent.objects.get(kind="interruption").reason == "EC2 will interrupt this spot instance"
