"""Benchmark a scheduler tick with few or no changes: `python -m benchmarks.ticks [LIVE]`.

The real loop runs on a separate database, with an in-memory runtime and pools of fixed size. One workload in
eight is pending. The benchmark measures the scheduler's CPU time by step, excluding PostgreSQL.
"""

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from benchmarks.setup.arguments import parser
from benchmarks.setup.own_database import own_database
from berth.core.garbage import relax_garbage_collection

LIVE, PROJECTS, DEPARTMENTS, GPUS, TICKS = 5_000, 30, 5, 8, 7
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
STEPS = {  # functions called by scheduler/loop/tick.py, with their labels
    "record_reports": "pod reports", "observe": "observe", "decide_pools": "decide", "commit": "commit",
    "record_earlier_cycles": "records", "record_newest_cycle": "records", "start_pods": "start",
    "stop_pods": "stop", "end_overdue_workloads": "limits", "record_checkpoints": "checkpoints",
    "explain_pending_workloads": "reasons", "write_reason_batch": "reasons", "store_snapshot": "snapshots",
    "report_demand": "demand", "drop_stale_reservations": "reservations",
    "evict_from_overdue_drains": "drains",
}  # fmt: skip


def main() -> None:
    options = parser(__doc__)
    options.add_argument("live", nargs="?", type=int, default=LIVE, help="Number of live workloads.")
    arguments = options.parse_args()
    live = 160 if arguments.tiny else arguments.live
    relax_garbage_collection()  # the scheduler also does this
    with own_database("ticks"):
        rows = _measure(live)
    from benchmarks.decide import RESULTS, commit, machine

    if live == LIVE:
        RESULTS.mkdir(exist_ok=True)
        answer = {"machine": machine(), "commit": commit(), "live": live, "ticks": TICKS, "rows": rows}
        (RESULTS / "ticks.json").write_text(json.dumps(answer, indent=1) + "\n")


def _measure(live: int) -> list[dict[str, Any]]:
    from projects.models import Workload

    loop, runtime, clock = stage(live)
    began = time.process_time()
    for _ in range(3):  # repeat until all workloads that fit are running
        loop.tick()
        while loop.has_more:
            loop.tick()
        clock.advance(1)
    print(f"{live} workloads placed and running after {time.process_time() - began:.1f} s of CPU", flush=True)
    running = list(Workload.objects.filter(phase="running").order_by("pk").values_list("pk", flat=True))
    print(f"{len(running)} run")
    rows = [_row("nothing changed", loop, clock, lambda turn: None)]
    ended = iter(running)

    def some_end(turn: int) -> None:
        from projects.models import Pod

        for _ in range(10):
            for pod in Pod.objects.filter(workload=next(ended)):
                runtime.end(str(pod.pk), exit_code=0)

    rows.append(_row("10 ended", loop, clock, some_end))
    return rows


def _row(name: str, loop: Any, clock: Any, happens: Callable[[int], None]) -> dict[str, Any]:
    spent: dict[str, list[float]] = defaultdict(list)
    with timed_steps(spent):
        for turn in range(TICKS):
            happens(turn)
            clock.advance(6)
            before = time.process_time()
            loop.tick()
            spent["all"].append(time.process_time() - before)
    middle = {step: round(statistics.median(seconds) * 1000, 1) for step, seconds in spent.items() if seconds}
    row: dict[str, Any] = {"what": name, "cpu_ms": dict(sorted(middle.items(), key=lambda item: -item[1]))}
    print(f"{name:<18}" + "  ".join(f"{step} {ms}" for step, ms in row["cpu_ms"].items()), flush=True)
    return row


@contextmanager
def timed_steps(spent: dict[str, list[float]]) -> Iterator[None]:
    from scheduler.loop import tick as loop

    steps: dict[str, Any] = {}
    for name, label in STEPS.items():
        steps[name] = getattr(loop, name)
        setattr(loop, name, _timed(steps[name], spent[label]))
    try:
        yield
    finally:
        for name, step in steps.items():
            setattr(loop, name, step)


def _timed(step: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Wrap the step in a timer. If the step is a generator, time each of its parts."""

    def timed(*args: Any, **named: Any) -> Any:
        before = time.process_time()
        try:
            result = step(*args, **named)
        finally:
            spent.append(time.process_time() - before)
        return timed_parts(result) if isinstance(result, Generator) else result

    def timed_parts(parts: Generator[Any, None, Any]) -> Iterator[Any]:
        advance = _timed(lambda: next(parts, None), spent)
        while (part := advance()) is not None:
            yield part

    return timed


def stage(live: int, nodes: int | None = None) -> tuple[Any, Any, Any]:
    """Create a cluster with `nodes` nodes, by default enough for 7/8 of the workloads.

    Return the loop, the runtime and the clock.
    """
    from berth.db.loops import lease
    from pools.models import Node, NodePool
    from scheduler.loop.context import SchedulerContext
    from scheduler.loop.tick import Loop
    from tests.fakes.clock import FixedClock
    from tests.fakes.runtime import FakeRuntime

    nodes = nodes or live * 7 // 8 // GPUS
    pool = NodePool.objects.create(
        name="bench", provider="fake", runtime="fake", nodes_min=nodes, nodes_max=nodes, gpus_per_node=GPUS,
        cpu_milli=64_000, memory_mib=512_000, operational_since=NOON,
    )  # fmt: skip
    shape = {"gpus": GPUS, "cpu_milli": 64_000, "memory_mib": 512_000, "state": "ready", "since": NOON}
    Node.objects.bulk_create(
        Node(pool=pool, name=f"bench-{i}", ordinal=i, instance_id=f"i-{i}", **shape) for i in range(nodes)
    )
    submit(live, create_queues(pool, nodes))
    clock = FixedClock(NOON)
    runtime = FakeRuntime(clock)
    held_lease = lease.acquire("scheduler", "bench", 3600)
    assert held_lease is not None
    context = SchedulerContext(held_lease=held_lease, runtimes=lambda pool: runtime)
    return Loop(context=context, clock=clock, reconcile_pool=lambda *args: False), runtime, clock


def create_queues(pool: Any, nodes: int) -> list[Any]:
    """Create departments and projects that share the pool equally. Return the projects."""
    from projects.models import Department, Project, Quota

    above = [Department.objects.create(name=f"d{i}") for i in range(DEPARTMENTS)]
    projects = [
        Project.objects.create(name=f"p{i:02}", department=above[i % DEPARTMENTS]) for i in range(PROJECTS)
    ]
    whole = nodes * GPUS * 1000
    Quota.objects.bulk_create(
        [Quota(department=department, pool=pool, gpu_milli=whole // DEPARTMENTS) for department in above]
        + [Quota(project=project, pool=pool, gpu_milli=whole // PROJECTS) for project in projects]
    )
    return projects


def submit(live: int, projects: list[Any], **fields: Any) -> None:
    """Submit one workload through the service layer, and copy its row until there are `live` workloads."""
    from django.contrib.auth.models import User

    from projects.actor import Actor
    from projects.models import Workload
    from projects.services.workloads import submission

    admin = Actor.for_user(User.objects.create_superuser("bench"))
    document = {
        "name": "first", "command": "python train.py --epochs 90", "pools": ["bench"], "env": {"SEED": "7"},
        "roles": [{"name": "worker", "replicas": 1, "gpu": 1, "cpu": 4, "memory_mib": 16384}],
        **fields,
    }  # fmt: skip
    first = submission.submit(actor=admin, project=projects[0], document=document, now=NOON)
    copied = [field.attname for field in Workload._meta.concrete_fields if field.name not in ("id", "name")]
    values = {name: getattr(first, name) for name in copied}
    Workload.objects.bulk_create(
        Workload(**{**values, "project_id": projects[i % PROJECTS].pk}, name=f"w{i:05}")
        for i in range(1, live)
    )


if __name__ == "__main__":
    main()
