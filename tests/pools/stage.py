"""A pool with a provider whose failures are scripted, and with a test clock."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from pools import services
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import NodeState
from pools.providers.base import InstanceState
from pools.reconciler import reconcile
from projects.actor import Actor
from tests.fakes.provider import FakeProvider

SYSTEM = Actor.system("tests")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Killed(BaseException):
    """Raised to simulate kill -9: no later line runs."""


@dataclass
class Stage:
    pool: NodePool
    provider: FakeProvider = field(default_factory=FakeProvider)
    now: datetime = START
    kill: Callable[[str], None] = lambda where: None

    def reconcile(self, **more: Any) -> bool:
        provider: Any = _Watched(self.provider, self.kill)
        return reconcile(self.pool.pk, provider=provider, now=self.now, fence=self._fence, **more)

    def settle(self, seconds: int = 15, passes: int = 12) -> None:
        """Run passes until the pool is settled. Draining nodes end immediately."""
        for _ in range(passes):
            did = self.reconcile()
            did |= self.empty_drains()
            self.join()
            self.pass_time(seconds)
            if not did and not self.reconcile():
                self.pass_time(60)  # the grace period of instances without a node
                if not self.reconcile():
                    return
        raise AssertionError("the pool does not come to rest")

    def join(self) -> None:
        """Make all requested machines join."""
        self.provider.boot()

    def empty_drains(self) -> bool:
        draining = Node.objects.filter(pool=self.pool, state=NodeState.DRAINING)
        emptied = [services.mark_node_emptied(node, at=self.now) for node in draining]
        return any(emptied)

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def resize(self, nodes_desired: int) -> None:
        services.set_nodes_desired(actor=SYSTEM, pool=self.pool, nodes_desired=nodes_desired)

    def report(self, queued: int = 0, running: int = 0, capacity: int = 0, gang_nodes: int = 0) -> bool:
        """Report the demand in GPUs."""
        return services.report_pressure(
            self.pool.pk, queued=queued * 1000, running=running * 1000, capacity=capacity * 1000,
            gang_nodes=gang_nodes, at=self.now,
        )  # fmt: skip

    @property
    def nodes_desired(self) -> int:
        self.pool.refresh_from_db()
        return self.pool.nodes_desired

    def states(self) -> dict[int, str]:
        living = Node.objects.filter(pool=self.pool).exclude(state=NodeState.ENDED)
        return {node.ordinal: str(node.state) for node in living.order_by("ordinal")}

    def node(self, ordinal: int) -> Node:
        return Node.objects.exclude(state=NodeState.ENDED).get(pool=self.pool, ordinal=ordinal)

    def history(self) -> list[str]:
        """Return the kinds of the scaling events, oldest first."""
        return [str(event.kind) for event in ScalingEvent.objects.filter(pool=self.pool).order_by("pk")]

    def errors(self) -> list[str]:
        """Return the errors of all failed calls to the provider, oldest first."""
        events = ScalingEvent.objects.filter(pool=self.pool, kind="error").order_by("pk")
        return [event.data["error"] for event in events]

    def check(self) -> None:
        """Assert that nodes and billed instances match one to one."""
        nodes = Node.objects.filter(pool=self.pool).exclude(state=NodeState.ENDED)
        paid = {instance.instance_id for instance in self.provider.living() if instance.state in _COSTS}
        assert {node.instance_id for node in nodes} == paid
        assert len(nodes) == self.nodes_desired

    @contextmanager
    def _fence(self) -> Iterator[None]:
        self.kill("before a transaction")
        with transaction.atomic():
            yield
            self.kill("before a commit")
        self.kill("after a commit")


_COSTS = (InstanceState.BOOTING, InstanceState.READY)


class _Watched:
    """A provider wrapper with a kill point before and after each call."""

    def __init__(self, provider: FakeProvider, kill: Callable[[str], None]) -> None:
        self._provider, self._kill = provider, kill
        self.has_joining_machines = provider.has_joining_machines

    def __getattr__(self, call: str) -> Callable[..., Any]:
        def calling(*arguments: Any) -> Any:
            self._kill(f"before {call}")
            answer = getattr(self._provider, call)(*arguments)
            self._kill(f"after {call}")
            return answer

        return calling


def pool(nodes: object = (0, 8), **values: Any) -> NodePool:
    defaults = {
        "provider": "fake",
        "runtime": "fake",
        "gpus_per_node": 2,
        "cpu_milli": 8000,
        "memory_mib": 8192,
    }
    return services.create_pool(actor=SYSTEM, name="small", nodes=nodes, **{**defaults, **values})
