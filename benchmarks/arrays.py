"""Benchmark arrays: `python -m benchmarks.arrays [TASKS]`.

Submit an array of 100 tasks and one of TASKS tasks, each limited to 8 running tasks. Measure the submission,
the scheduler's ticks while the other tasks are held, and the cancellation and the retry of all tasks. The
scheduler loop runs on a separate database, with an in-memory runtime. CPU times include the PostgreSQL
process of this connection.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.setup.arguments import parser
from benchmarks.setup.own_database import own_database
from berth.core.garbage import relax_garbage_collection

TASKS, SMALL, RUNNING, TICKS, TINY_TICKS, LIVE = 10_000, 100, 8, 20, 2, 400


def main() -> None:
    options = parser(__doc__)
    options.add_argument("tasks", nargs="?", type=int, default=TASKS, help="Tasks of the large array.")
    arguments = options.parse_args()
    sizes = (10, 20) if arguments.tiny else (SMALL, arguments.tasks)
    relax_garbage_collection()  # the scheduler also does this
    with own_database("arrays"):
        rows = _measure_all(sizes, *((16, TINY_TICKS) if arguments.tiny else (LIVE, TICKS)))
    if sizes == (SMALL, TASKS):
        from benchmarks.decide import RESULTS, commit, machine

        RESULTS.mkdir(exist_ok=True)
        answer = {"machine": machine(), "commit": commit(), "rows": rows}
        (RESULTS / "arrays.json").write_text(json.dumps(answer, indent=1) + "\n")


def _measure_all(sizes: Sequence[int], live: int, ticks: int) -> list[dict[str, Any]]:
    from benchmarks.ticks import stage

    loop, runtime, clock = stage(live, nodes=live // 8 + 2)
    _settle(loop, clock)
    print(f"tick_cpu_ms_without_array {_ticks(loop, clock, ticks, lambda: None)}", flush=True)
    rows = []
    for size in sizes:
        rows.append(_measure(size, loop, runtime, clock, ticks))
        print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    return rows


def _settle(loop: Any, clock: Any) -> None:
    for _ in range(4):
        loop.tick()
        clock.advance(1)


def _measure(size: int, loop: Any, runtime: Any, clock: Any, ticks: int) -> dict[str, Any]:
    from django.contrib.auth.models import User

    from projects.actor import Actor
    from projects.services import arrays

    admin = Actor.for_user(User.objects.get(username="bench"))
    roles = [{"name": "worker", "replicas": 1, "gpu": 1, "cpu": 4, "memory_mib": 16384}]
    document = {
        "name": f"sweep-of-{size}", "project": "p00", "command": "python train.py", "pools": ["bench"],
        "roles": roles, "array": {"tasks": size, "max_running": RUNNING},
    }  # fmt: skip
    with _measured() as submission, _statements() as counted:
        array = arrays.submit(actor=admin, document=document, now=clock.now()).array
    _settle(loop, clock)
    row = {
        "tasks": size,
        **submission("submit"),
        "submit_statements": len(counted),
        "tick_cpu_ms_nothing_changed": _ticks(loop, clock, ticks, lambda: None),
        "tick_cpu_ms_8_ended": _ticks(loop, clock, ticks, lambda: _end(array, runtime)),
    }
    with _measured() as cancellation:
        cancelled = arrays.cancel(actor=admin, array=array, now=clock.now())
    _settle(loop, clock)
    with _measured() as repetition:
        retried = arrays.retry(actor=admin, array=array, indexes=range(size), now=clock.now())
    arrays.cancel(actor=admin, array=array, now=clock.now())
    _settle(loop, clock)
    return {
        **row,
        "cancelled": cancelled,
        **cancellation("cancel"),
        "retried": retried,
        **repetition("retry"),
    }


def _end(array: Any, runtime: Any) -> None:
    from projects.models import Pod

    for pod in Pod.objects.filter(workload__array=array, state="running"):
        runtime.end(str(pod.pk), exit_code=0)


def _ticks(loop: Any, clock: Any, count: int, happens: Callable[[], None]) -> float:
    """Call `happens` before each of `count` ticks. Return the ticks' mean CPU time in milliseconds."""
    spent = 0.0
    for _ in range(count):
        happens()
        clock.advance(6)
        before = _cpu_seconds()
        loop.tick()
        spent += _cpu_seconds() - before
        loop.tick()  # the tasks that were started are now running
    return round(spent / count * 1000, 1)


@contextmanager
def _measured() -> Iterator[Callable[[str], dict[str, float]]]:
    """Measure the wall and CPU time of the block. After it, the yielded function returns both in seconds."""
    times = [time.perf_counter(), _cpu_seconds()]
    yield lambda name: {f"{name}_s": round(times[0], 2), f"{name}_cpu_s": round(times[1], 2)}
    times[:] = [time.perf_counter() - times[0], _cpu_seconds() - times[1]]


def _cpu_seconds() -> float:
    """Return the CPU seconds used by this process and its PostgreSQL process, with a resolution of 10 ms."""
    from django.db import connection

    connection.ensure_connection()
    stat = Path(f"/proc/{connection.connection.info.backend_pid}/stat").read_text()
    user, system = map(int, stat.rpartition(")")[2].split()[11:13])
    return time.process_time() + (user + system) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _statements() -> Iterator[list[str]]:
    """Collect the SQL statements that the block executes."""
    from django.db import connection

    collected: list[str] = []

    def collect(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        collected.append(sql)
        return execute(sql, *arguments)

    with connection.execute_wrapper(collect):
        yield collected


if __name__ == "__main__":
    main()
