"""Benchmark Kueue's scalability workload: `python -m benchmarks.kueue [--scale N]`.

Five departments with six projects each have a quota of 20 units and a limit of 120 per project. Each project
submits 350 small workloads (1 unit, 0.2 s, one every 100 ms), 100 medium ones (5 units, 0.5 s, one every
500 ms) and 50 large ones (20 units, 1 s, one every 1.2 s). By default, the benchmark runs a tenth of them.

The real loop runs on real rows in a separate database, with an in-memory runtime and a simulated clock that
advances by 100 ms per tick. A unit is one CPU. Arrivals are inserted in bulk and are not measured. The
benchmark measures the scheduler's CPU time, the database statements, and the wall time of the longest tick
and step.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from benchmarks.setup.arguments import parser
from benchmarks.setup.own_database import own_database
from benchmarks.ticks import timed_steps
from berth.core.garbage import relax_garbage_collection

DEPARTMENTS, PROJECTS_EACH, QUOTA, LIMIT = 5, 6, 20, 120
NODES, NODE_CPU = 10, 60
SCALE = 0.1
TICK = timedelta(milliseconds=100)
RECONCILE_EVERY = 10  # ticks
MAX_TICKS = 20_000
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Class:
    name: str
    count: int  # per project
    units: int
    seconds: float
    priority: int
    interval: float  # in seconds


CLASSES = (
    Class("small", 350, 1, 0.2, 50, 0.1),
    Class("medium", 100, 5, 0.5, 100, 0.5),
    Class("large", 50, 20, 1.0, 200, 1.2),
)


@dataclass
class Measures:
    """Totals of a run. Times are in seconds."""

    cpu: float = 0.0
    statements: int = 0
    tables: Counter[str] = field(default_factory=Counter)
    longest_tick: float = 0.0
    longest_step: float = 0.0

    @contextmanager
    def measured(self, longest: str) -> Iterator[None]:
        from django.db import connection

        cpu, wall = time.process_time(), time.perf_counter()
        with connection.execute_wrapper(self._count):
            yield
        self.cpu += time.process_time() - cpu
        setattr(self, longest, max(getattr(self, longest), time.perf_counter() - wall))

    def _count(self, execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        self.statements += 1
        self.tables[" ".join(sql.split()[:3])] += 1
        return execute(sql, *arguments)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--scale", type=float, default=SCALE, help="Part of the 15,000 workloads, up to 1.")
    options.add_argument("--statements", action="store_true", help="Print the most frequent statements.")
    arguments = options.parse_args()
    scale = 0.003 if arguments.tiny else arguments.scale
    relax_garbage_collection()  # as the scheduler does
    with own_database("kueue"):
        row = run(scale, show_statements=arguments.statements)
    from benchmarks.decide import RESULTS, commit, machine

    if not arguments.tiny and scale == SCALE:
        RESULTS.mkdir(exist_ok=True)
        answer = {"machine": machine(), "commit": commit(), "scale": scale, **row}
        (RESULTS / "kueue.json").write_text(json.dumps(answer, indent=1) + "\n")


def run(scale: float, *, show_statements: bool = False) -> dict[str, Any]:
    """Run the benchmark in the current database. Print and return its measurements."""
    from projects.models import Workload
    from projects.models.workloads import LIVE_PHASES

    loop, clock, arrivals = stage(scale)
    count, measures, ticks = len(arrivals), Measures(), 0
    spent: dict[str, list[float]] = defaultdict(list)
    with timed_steps(spent):
        while arrivals or Workload.objects.filter(phase__in=LIVE_PHASES).exists():
            assert ticks < MAX_TICKS, "the workloads never ended"
            due = [row for row in arrivals if row.submitted_at <= clock.now()]
            arrivals = arrivals[len(due) :]
            Workload.objects.bulk_create(due)
            with measures.measured("longest_tick"):
                loop.tick(reconcile=False)
            if ticks % RECONCILE_EVERY == 0:
                _reconcile(loop, measures)
            clock.advance(TICK.total_seconds())
            ticks += 1
    _reconcile(loop, measures)
    completed = Workload.objects.filter(phase="completed").count()
    row = {
        "workloads": count,
        "completed": completed,
        "ticks": ticks,
        "cpu_ms_each": round(measures.cpu / count * 1000, 2),
        "statements_each": round(measures.statements / count, 2),
        "per_cpu_second": round(count / measures.cpu, 1),
        "longest_tick_ms": round(measures.longest_tick * 1000),
        "longest_step_ms": round(measures.longest_step * 1000),
        "step_cpu_ms_each": {
            step: round(sum(seconds) / count * 1000, 2)
            for step, seconds in sorted(spent.items(), key=lambda item: -sum(item[1]))
        },
    }
    for key, value in row.items():
        print(f"{key:<18} {value}", flush=True)
    if show_statements:
        for statement, times in measures.tables.most_common(25):
            print(f"{times:>8} {statement}")
    return row


def _reconcile(loop: Any, measures: Measures) -> None:
    steps, changed = chain(loop.reconcile_steps(), loop.clean_up_steps()), False
    while changed is not None:
        with measures.measured("longest_step"):
            changed = loop.run_step(steps)


def stage(scale: float) -> tuple[Any, Any, list[Any]]:
    """Create the cluster. Return the loop, its clock and the unsaved workloads in order of arrival."""
    from berth.db import lease
    from pools.models import Node, NodePool
    from projects.models import Department, Project, Quota
    from scheduler.loop.context import SchedulerContext
    from scheduler.loop.tick import Loop
    from tests.fakes.clock import FixedClock
    from tests.fakes.runtime import FakeRuntime, Lifetime

    shape = {"cpu_milli": NODE_CPU * 1000, "memory_mib": 1_000_000, "max_pods": 200}
    pool = NodePool.objects.create(
        name="bench", provider="fake", runtime="fake", nodes_min=NODES, nodes_max=NODES, gpus_per_node=0,
        operational_since=NOON, **shape,
    )  # fmt: skip
    Node.objects.bulk_create(
        Node(
            pool=pool,
            name=f"bench-{i}",
            ordinal=i,
            instance_id=f"i-{i}",
            gpus=0,
            state="ready",
            since=NOON,
            **shape,
        )
        for i in range(NODES)
    )
    departments = [Department.objects.create(name=f"d{i}") for i in range(DEPARTMENTS)]
    projects = [
        Project.objects.create(name=f"p{i:02}", department=departments[i % DEPARTMENTS])
        for i in range(DEPARTMENTS * PROJECTS_EACH)
    ]
    Quota.objects.bulk_create(
        [Quota(department=row, pool=pool, cpu_milli=QUOTA * PROJECTS_EACH * 1000) for row in departments]
        + [
            Quota(project=row, pool=pool, cpu_milli=QUOTA * 1000, limit_cpu_milli=LIMIT * 1000)
            for row in projects
        ]
    )
    clock = FixedClock(NOON)
    seconds = {str(size.priority): size.seconds for size in CLASSES}
    runtime = FakeRuntime(clock, lifetime=lambda order: Lifetime(seconds[order.env["PRIORITY"]]))
    held_lease = lease.acquire("scheduler", "bench", 3600)
    assert held_lease is not None
    context = SchedulerContext(held_lease=held_lease, runtimes=lambda pool: runtime)
    loop = Loop(context=context, clock=clock, reconcile_pool=lambda *args: False)
    arrivals = [row for size in CLASSES for row in _arrivals(size, projects, scale)]
    return loop, clock, sorted(arrivals, key=lambda row: (row.submitted_at, row.name))


def _arrivals(size: Class, projects: list[Any], scale: float) -> Iterator[Any]:
    """Yield unsaved copies of a workload that was submitted through the service layer and then deleted."""
    from django.contrib.auth.models import User

    from projects.actor import Actor
    from projects.models import Workload
    from projects.services.workloads.submission import submit

    admin = Actor.for_user(User.objects.create_superuser(f"bench-{size.name}"))
    document = {
        "name": size.name, "command": "true", "pools": ["bench"], "priority": size.priority,
        "env": {"PRIORITY": str(size.priority)},
        "roles": [{"name": "worker", "replicas": 1, "cpu": size.units}],
    }  # fmt: skip
    first = submit(actor=admin, document=document, project=projects[0], now=NOON)
    names = [field.attname for field in Workload._meta.concrete_fields if field.name not in ("id", "name")]
    values = {name: getattr(first, name) for name in names}
    Workload.objects.filter(pk=first.pk).delete()
    for number in range(max(1, round(size.count * scale))):
        at = NOON + timedelta(seconds=number * size.interval)
        for project in projects:
            changed = {"project_id": project.pk, "submitted_at": at, "since": at}
            yield Workload(**{**values, **changed}, name=f"{size.name}-{number}")


if __name__ == "__main__":
    main()
