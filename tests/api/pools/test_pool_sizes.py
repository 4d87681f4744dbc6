"""Tests for pool scaling in the scheduler loop, with fake machines."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from berth.db.loops import lease
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import USABLE
from pools.reconciler import reconcile
from scheduler.loop.context import SchedulerContext
from scheduler.loop.tick import Loop
from tests.api.conftest import Caller
from tests.fakes.clock import FixedClock
from tests.fakes.provider import FakeProvider
from tests.fakes.runtime import FakeRuntime
from tests.harness.samples import sample
from tests.scheduler.stage import NOON

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "node-pools/small"


@dataclass
class Cluster:
    provider: FakeProvider
    clock: FixedClock = field(default_factory=lambda: FixedClock(NOON))

    def __post_init__(self) -> None:
        held_lease = lease.acquire("scheduler", "first", 3600)
        assert held_lease is not None
        runtime = FakeRuntime(self.clock)
        context = SchedulerContext(held_lease=held_lease, runtimes=lambda pool: runtime)
        self.loop = Loop(context=context, clock=self.clock, reconcile_pool=self._reconcile)

    def run(self, seconds: int, step: int = 5) -> None:
        for _ in range(0, seconds, step):
            self.clock.advance(step)
            self.loop.tick()

    def ready(self) -> int:
        return Node.objects.filter(pool__name="small", state__in=USABLE).count()

    def _reconcile(self, pool: NodePool, now: datetime, held_lease: object, work_to_lose: Any) -> bool:
        return reconcile(pool.pk, provider=self.provider, now=now, work_to_lose=work_to_lose)


def create(alice: Caller, nodes: object, **values: object) -> None:
    shape = {"provider": "fake", "runtime": "fake", "gpus_per_node": 2, "cpu": 8, "memory_mib": 8192}
    answer = alice.post("node-pools", {"name": "small", "nodes": nodes, **shape, **values})
    assert answer.status_code == 201, answer.content


def nodes_desired(alice: Caller) -> int:
    return int(alice.get(PATH).json()["nodes_desired"])


def drains() -> list[str]:
    return list(ScalingEvent.objects.filter(kind="drain").values_list("reason", flat=True))


@pytest.mark.shows("SKY-15", "SKY-17", "SKY-21", "SKY-32", "SKY-33")
@pytest.mark.parametrize("boot_seconds", sample([0, 150], 1))
def test_nodes_above_the_minimum_are_removed_after_the_idle_timeout(alice: Caller, boot_seconds: int) -> None:
    create(alice, {"min": 1, "desired": 4, "max": 4})
    cluster = Cluster(FakeProvider(boots_immediately=boot_seconds == 0))
    cluster.run(boot_seconds, step=15)
    assert cluster.ready() == 0
    cluster.provider.boot()
    cluster.run(50)
    assert alice.get(PATH).json()["operational"] is True
    assert (nodes_desired(alice), cluster.ready(), drains()) == (4, 4, [])
    cluster.run(40)
    assert (nodes_desired(alice), len(drains())) == (1, 3)
    assert ScalingEvent.objects.filter(kind="autoscale").latest("pk").reason.startswith("idle for ")


@pytest.mark.heavy
@pytest.mark.shows("SKY-21", "SKY-33")
def test_manually_added_nodes_do_not_count_as_idle_before_they_are_ready(alice: Caller) -> None:
    # The pool has been idle for 200 s, and its machines take longer to boot than the cooldown.
    create(alice, [0, 4])
    cluster = Cluster(FakeProvider(boots_immediately=False))
    cluster.run(200, step=20)
    assert alice.post(f"{PATH}/scale", {"nodes": 3}).status_code == 200
    NodePool.objects.update(last_scaled_at=cluster.clock.now())  # REST uses the real clock
    cluster.run(120, step=20)
    assert (nodes_desired(alice), cluster.ready()) == (3, 0)
    cluster.provider.boot()
    cluster.run(50)
    assert (nodes_desired(alice), cluster.ready(), drains()) == (3, 3, [])
    cluster.run(40)
    assert (nodes_desired(alice), len(drains())) == (0, 3)
