"""Test that a reconciler on EC2 leaks no machine when it is killed at random.

`BERTH_KILLS` is the number of kills, and `BERTH_KILLS_SEED` repeats the choices of an earlier run.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random, SystemRandom

import pytest

from pools.models import Node
from pools.models.node import NodeState
from tests.pools.aws.ec2_account import Ec2Account, ec2_account, order
from tests.pools.aws.ec2_proxy import Fault
from tests.pools.aws.test_aws_killed import Ec2Stage, ec2_stage
from tests.pools.reconciler.test_reconciler_killed import KillAt
from tests.pools.stage import Killed

pytestmark = [pytest.mark.django_db, pytest.mark.heavy, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("BERTH_KILLS", "100"))
SEED = int(os.environ.get("BERTH_KILLS_SEED") or SystemRandom().randrange(10_000))
NODES_MAX = 6
POINTS = 30  # a reconciler that changes something passes fewer points at which it can be killed
CALLS = ("CreateFleet", "CreateFleet", "DescribeInstances", "TerminateInstances")
CODES = ("InternalError", "RequestLimitExceeded", "InsufficientInstanceCapacity")


@dataclass
class Account:
    """A pool on EC2, and the events caused by EC2 and its users. `happened` counts the events by name."""

    stage: Ec2Stage
    random: Random
    happened: Counter[str] = field(default_factory=Counter)

    def inject_fault(self) -> None:
        events: dict[Callable[[], None], int] = {
            self.resize: 6, self.fail_call: 4, self.limit_capacity: 1, self.stop_machine: 2,
            self.interrupt_machine: 1, self.keep_machine: 1, self.wait: 3,
        }  # fmt: skip
        [event] = self.random.choices([*events], [*events.values()])
        self.happened[event.__name__] += 1
        event()

    def resize(self) -> None:
        self.stage.resize(self.random.randint(0, NODES_MAX))

    def fail_call(self) -> None:
        fault = Fault(self.random.choice(CODES), after=self.random.random() < 0.5)
        self.stage.place.proxy.next(self.random.choice(CALLS), fault)

    def limit_capacity(self) -> None:
        self.stage.place.proxy.capacity["spot"] = self.random.choice([0, 1, 3, None])

    def stop_machine(self) -> None:
        if machine := self.machine():
            self.stage.place.clients().ec2.stop_instances(InstanceIds=[machine])

    def interrupt_machine(self) -> None:
        if machine := self.machine():
            self.stage.place.proxy.interrupt_spot_machine(machine, self.stage.now)

    def keep_machine(self) -> None:
        """Make calls that terminate this machine have no effect for now."""
        if machine := self.machine():
            self.stage.place.proxy.unending.add(machine)

    def wait(self) -> None:
        self.stage.pass_time(self.random.choice([40, 120, 1000]))

    def machine(self) -> str:
        nodes = Node.objects.exclude(state=NodeState.ENDED).order_by("pk")
        machines = [node.instance_id for node in nodes if node.instance_id]
        return self.random.choice(machines) if machines else ""

    def reconcile(self) -> bool:
        """Reconcile as the real loop does. Return whether the reconciler was killed."""
        self.stage.kill = killer = KillAt(self.random.randint(1, POINTS))
        with suppress(Killed):
            self.stage.reconcile()
            self.stage.empty_drains()
            self.stage.join()
        self.stage.kill = lambda where: None
        self.stage.pass_time(15)
        if killer.where:
            self.happened[f"killed {killer.where}"] += 1
        return bool(killer.where)

    def repair(self) -> None:
        proxy = self.stage.place.proxy
        proxy.faults.clear()
        proxy.unending.clear()
        proxy.capacity.update({"spot": None, "on-demand": None})


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    with ec2_account(monkeypatch) as ec2:
        yield Account(ec2_stage(ec2, (0, NODES_MAX), purchase="spot_then_on_demand"), Random(SEED))


def test_random_kills_leave_no_machine_without_a_node(account: Account) -> None:
    stage, place = account.stage, account.stage.place
    theirs = start_foreign_machine(place)
    kills = 0
    while kills < KILLS:
        account.inject_fault()
        kills += account.reconcile()
    print(f"BERTH_KILLS_SEED={SEED}", dict(account.happened))

    account.repair()
    stage.resize(3)
    stage.settle(passes=60)
    assert place.proxy.living() == machines_of_nodes() | theirs
    assert len(machines_of_nodes()) == 3
    stage.resize(0)
    stage.settle(passes=60)
    assert place.proxy.living() == theirs, "only the machine of the other installation is left"
    assert not machines_of_nodes()


def machines_of_nodes() -> set[str]:
    return {node.instance_id for node in Node.objects.exclude(state=NodeState.ENDED)}


def start_foreign_machine(place: Ec2Account) -> set[str]:
    """Start a machine of another installation, for a pool with the same name."""
    other = place.provider()
    other.installation = f"{place.installation}-other"
    result = other.provision(order("theirs", 1))
    return {instance.instance_id for instance in result.instances}
