"""A scheduler with real rows, a fixed clock and simulated pods."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from berth.db.loops import lease
from pools.models import Node, NodePool
from projects.models import Pod, Project, Quota, Workload
from projects.services.workloads import submission
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from scheduler.loop import decide as deciding
from scheduler.loop.context import SchedulerContext
from scheduler.loop.tick import Loop
from tests.cast import Cast, training
from tests.fakes.clock import FixedClock
from tests.fakes.registries import FakeResolver
from tests.fakes.runtime import FakeRuntime

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def decide_by(patch: pytest.MonkeyPatch, decide: Callable[[Snapshot], Plan]) -> None:
    """Replace the engine with `decide`, without a layout cache."""
    patch.setattr(deciding, "decide", decide)
    patch.setattr(deciding, "decide_with_layout", lambda snapshot, layout: (decide(snapshot), None))


@dataclass
class Stage:
    cast: Cast
    clock: FixedClock = field(default_factory=lambda: FixedClock(NOON))
    loop: Loop = field(init=False)
    runtime: FakeRuntime = field(init=False)
    registries: FakeResolver = field(default_factory=FakeResolver)

    def __post_init__(self) -> None:
        self.runtime = FakeRuntime(self.clock)
        self.loop = self.new_loop()

    def new_loop(self, holder: str = "first") -> Loop:
        held_lease = lease.acquire("scheduler", holder, 60)
        assert held_lease is not None
        context = SchedulerContext(
            held_lease=held_lease, runtimes=lambda pool: self.runtime, images=self.registries
        )
        return Loop(
            context=context, clock=self.clock, reconcile_pool=lambda pool, now, held_lease, work: False
        )

    def node(self, ordinal: int = 0, pool: NodePool | None = None, **values: Any) -> Node:
        pool = pool or self.cast.pool
        if pool.operational_since is None:
            pool.operational_since = NOON
            pool.save(update_fields=["operational_since"])
        values = {
            "gpus": pool.gpus_per_node,
            "cpu_milli": pool.cpu_milli,
            "memory_mib": pool.memory_mib,
            "state": "ready",
            "since": NOON,
            "devices": [f"GPU-{ordinal}-{i}" for i in range(8)],
            **values,
        }
        name = f"{pool.name}-{ordinal}"
        return Node.objects.create(pool=pool, name=name, ordinal=ordinal, instance_id=f"i-{name}", **values)

    def quota(self, owner: Any, gpus: int, **values: Any) -> Quota:
        kind = "project" if isinstance(owner, Project) else "department"
        return Quota.objects.create(**{kind: owner}, pool=self.cast.pool, gpu_milli=gpus * 1000, **values)

    def submit(self, name: str = "train-1", project: Project | None = None, **changes: Any) -> Workload:
        """Submit a workload at the stage's current time, then advance the clock by a second."""
        workload = submission.submit(
            actor=self.cast.alice,
            project=project or self.cast.vision,
            document=training(name, **changes),
            now=self.clock.now(),
        )
        self.clock.advance(1)
        return workload

    def tick(self, times: int = 1, seconds: float = 0) -> None:
        """Run `times` ticks.

        As in the scheduler process, reconciliation waits while ticks follow each other without a pause.
        """
        for number in range(times):
            changed = self.loop.tick(reconcile=False)
            if not changed or seconds or number == times - 1:
                self.loop.reconcile()
            self.clock.advance(seconds)

    def phase(self, workload: Workload) -> str:
        workload.refresh_from_db()
        return workload.phase

    def pods(self, workload: Workload, *states: str) -> list[Pod]:
        rows = Pod.objects.filter(workload=workload).select_related("allocation", "node")
        rows = rows.filter(state__in=states) if states else rows
        return list(rows.order_by("run", "rank", "created_at"))

    def finish(self, workload: Workload, exit_code: int = 0) -> None:
        for pod in self.pods(workload, "running"):
            self.runtime.end(str(pod.pk), exit_code=exit_code)
