"""Benchmark Kueue's scalability workload: `python -m benchmarks.kueue [--scale N]`.

Each of five departments has six projects, and each project has a quota of 20 units and a limit of 120. Each
project submits 350 small workloads (1 unit, 0.2 s, one every 100 ms), 100 medium ones (5 units, 0.5 s, one
every 500 ms) and 50 large ones (20 units, 1 s, one every 1.2 s): 15,000 in total. A unit is one CPU, and the
nodes have exactly as many CPUs as all quotas together. By default, the benchmark runs a tenth of the
workloads, at the same rates.

A large workload needs its project's whole quota. Once it has been pending for `--reservation-after` seconds,
the project's medium workloads no longer start before it. With `--preemptible`, all workloads are preemptible,
as in Kueue, and projects borrow up to their limits. By default, workloads with a priority of 100 or more are
non-preemptible and stay within quota.

Everything is real except the pods, which are timers in the scheduler process. Workloads are submitted through
`POST /api/v1/workloads:batch` to a web process, and the scheduler runs in a separate process.
"""

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.setup.arguments import parser
from benchmarks.setup.cluster import Cluster, await_nodes, create_cluster
from benchmarks.setup.own_database import own_database
from benchmarks.setup.processes.server_processes import ServerProcesses, server_processes, wait_until

SCALE = 0.1
RESERVATION_AFTER = 2  # in seconds; all workloads run for at most a second
NODES = {"node": 120, "pods_per_node": 400}  # Kueue counts only quotas, so there is little fragmentation
BATCH_SECONDS = 0.1  # the generator sends everything that is due together
BATCH_MAX = 1000


@dataclass(frozen=True)
class SizeClass:
    name: str
    count: int  # number per project
    units: int
    seconds: float
    priority: int
    interval: float  # interval in seconds


CLASSES = (
    SizeClass("small", 350, 1, 0.2, 50, 0.1),
    SizeClass("medium", 100, 5, 0.5, 100, 0.5),
    SizeClass("large", 50, 20, 1.0, 200, 1.2),
)
ADMISSION = """
    SELECT w.priority, count(*), avg(extract(epoch FROM e.at - w.submitted_at)),
           max(extract(epoch FROM e.at - w.submitted_at))
      FROM projects_workload w
      JOIN (SELECT workload_id, min(at) AS at FROM projects_event WHERE kind = 'starting' GROUP BY 1) e
           ON e.workload_id = w.id
     GROUP BY w.priority
"""
WALL = "SELECT extract(epoch FROM max(ended_at) - min(submitted_at)) FROM projects_workload"
ALLOCATED = """
    SELECT sum(cpu_milli * extract(epoch FROM released_at - bound_at)) / 1000 FROM scheduler_allocation
"""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--scale", type=float, default=SCALE, help="Part of the 15,000 workloads, up to 1.")
    options.add_argument(
        "--reservation-after", type=int, default=RESERVATION_AFTER, help="Setting of the pool, in seconds."
    )
    options.add_argument("--preemptible", action="store_true", help="Make all workloads preemptible.")
    options.add_argument("--profile", type=Path, help="File for a profile of the scheduler process.")
    options.add_argument("--slow-decisions", type=Path, help="Directory for the five slowest decisions.")
    arguments = options.parse_args()
    scale = 0.003 if arguments.tiny else arguments.scale
    paths = {"BERTH_BENCH_PROFILE": arguments.profile, "BERTH_BENCH_DECISIONS": arguments.slow_decisions}
    settings = {name: str(path.resolve()) for name, path in paths.items() if path}
    with own_database("kueue"):
        row = run(scale, settings, arguments.reservation_after, preemptible=arguments.preemptible)
    from benchmarks.decide import RESULTS, commit, machine

    is_default = arguments.reservation_after == RESERVATION_AFTER and not arguments.preemptible
    if not arguments.tiny and is_default and scale in (SCALE, 1.0):
        RESULTS.mkdir(exist_ok=True)
        answer = {"machine": machine(), "commit": commit(), "scale": scale, **row}
        name = "kueue.json" if scale == SCALE else "kueue_whole.json"
        (RESULTS / name).write_text(json.dumps(answer, indent=1) + "\n")


def run(
    scale: float,
    settings: dict[str, str],
    reservation_after: int = RESERVATION_AFTER,
    *,
    preemptible: bool = False,
) -> dict[str, Any]:
    """Run the benchmark in the current database. Print and return its measurements."""
    token, projects = create_cluster(Cluster(**NODES, reservation_after=reservation_after))
    arrivals = sorted(generate_arrivals(projects, scale), key=lambda arrival: arrival[0])
    if preemptible:
        for _, document in arrivals:
            document["preemptible"] = True
    with server_processes(settings) as processes, processes.client(token) as http:
        await_nodes()
        before = processes.cpu_seconds()
        processes.take_report()
        lag = submit_in_time(http, arrivals)
        _await_ends(len(arrivals), processes)
        cpu = {name: seconds - before[name] for name, seconds in processes.cpu_seconds().items()}
        row = {**_measurements(len(arrivals), cpu), "generator_lag_s": round(lag, 2)}
        row["loop"] = _per_workload(processes.take_report(), len(arrivals))
    for key, value in row.items():
        print(f"{key:<18} {value}", flush=True)
    return row


def _per_workload(report: dict[str, Any], count: int) -> dict[str, Any]:
    steps = {step: round(seconds / count * 1000, 2) for step, seconds in report.pop("steps_cpu_s").items()}
    return {
        **report,
        "statements_each": round(report["statements"] / count, 2),
        "step_cpu_ms_each": steps,
    }


def generate_arrivals(projects: Sequence[str], scale: float) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield each submission's time in seconds and its workload document."""
    for size in CLASSES:
        for number in range(max(1, round(size.count * scale))):
            for project in projects:
                yield number * size.interval, {
                    "name": f"{size.name}-{number}", "project": project, "command": "true",
                    "pools": ["bench"], "priority": size.priority, "env": {"SECONDS": str(size.seconds)},
                    "roles": [{"name": "worker", "replicas": 1, "cpu": size.units}],
                }  # fmt: skip


def submit_in_time(http: httpx.Client, arrivals: Sequence[tuple[float, dict[str, Any]]]) -> float:
    """Submit each document at its due time. Return the largest delay in seconds."""
    began, sent, lag = time.monotonic(), 0, 0.0
    while sent < len(arrivals):
        passed = time.monotonic() - began
        due = [document for at, document in arrivals[sent : sent + BATCH_MAX] if at <= passed]
        if due:
            lag = max(lag, passed - arrivals[sent][0])
            key = {"Idempotency-Key": str(uuid.uuid4())}
            answer = http.post("/api/v1/workloads:batch", json={"items": due}, headers=key)
            assert answer.status_code == httpx.codes.OK, answer.text[:2000]
            assert answer.json()["rejected"] == 0, answer.text[:2000]
            sent += len(due)
        if len(due) < BATCH_MAX:
            time.sleep(max(0.0, BATCH_SECONDS - (time.monotonic() - began - passed)))
    return lag


def _await_ends(count: int, servers: ServerProcesses) -> None:
    from projects.models import Workload
    from projects.models.workloads import LIVE_PHASES

    live = Workload.objects.filter(phase__in=LIVE_PHASES)  # served by an index, unlike a count of all rows
    wait_until(lambda: servers.are_running() and not live.exists(), "the workloads did not end")
    phases = Counter(Workload.objects.values_list("phase", flat=True))
    assert phases == {"completed": count}, phases


def _measurements(count: int, cpu: dict[str, float]) -> dict[str, Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        wall = float(cursor.execute(WALL).fetchone()[0])
        allocated = float(cursor.execute(ALLOCATED).fetchone()[0])
        by_priority = {row[0]: row[1:] for row in cursor.execute(ADMISSION).fetchall()}
    quota = Cluster().cpus
    return {
        "workloads": count,
        "wall_s": round(wall, 1),
        "per_second": round(count / wall, 1),
        "quota_used": round(allocated / (quota * wall), 3),
        "admission_s": {
            size.name: {
                "mean": round(float(by_priority[size.priority][1]), 2),
                "max": round(float(by_priority[size.priority][2]), 2),
            }
            for size in CLASSES
        },
        "cpu_s": {name: round(seconds, 1) for name, seconds in cpu.items()},
        "cpu_ms_each": {name: round(seconds / count * 1000, 2) for name, seconds in cpu.items()},
    }


if __name__ == "__main__":
    main()
