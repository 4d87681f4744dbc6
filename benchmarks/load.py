"""Benchmark the scheduler under load: `python -m benchmarks.load [PART ...]`.

The web process and the scheduler are real processes, but the pods are timers in the scheduler process.

- `pending`: CPU time of a scheduler round with 50,000 pending workloads in 1,000 queues, without changes and
  after one more submission.
- `ends`: 10,000 workloads end within one second. Time until all have completed and their successors run.
- `edits`: quota edits per second over REST while Kueue's workloads arrive (see `benchmarks.kueue`), and their
  effect on the scheduler.
"""

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks import kueue
from benchmarks.setup.arguments import parser
from benchmarks.setup.cluster import POOL, Cluster, await_nodes, create_cluster
from benchmarks.setup.own_database import own_database
from benchmarks.setup.processes.server_processes import ServerProcesses, server_processes, wait_until

Row = dict[str, Any]
BATCH = 1000
WINDOWS, WINDOW_SECONDS = 7, 6.0  # the scheduler ticks every 5 s without a change
PROJECTS = Cluster().departments * Cluster().projects_each
STEPS = ("observe", "decide", "records")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    options.add_argument("--count", type=int, help="Number of workloads or edits of the part.")
    options.add_argument("--profile", type=Path, help="File for a profile of the scheduler process.")
    arguments = options.parse_args()
    settings = {"BERTH_BENCH_PROFILE": str(arguments.profile.resolve())} if arguments.profile else {}
    rows = []
    for name in arguments.parts or PARTS:
        part, count, tiny = PARTS[name]
        with own_database(name):
            rows.append(part(tiny if arguments.tiny else arguments.count or count, settings))
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    from benchmarks.decide import RESULTS, commit, machine

    if not arguments.tiny and not arguments.parts:
        answer = {"machine": machine(), "commit": commit(), "rows": rows}
        (RESULTS / "load.json").write_text(json.dumps(answer, indent=1) + "\n")


def pending(count: int, settings: dict[str, str]) -> Row:
    """Measure scheduler rounds with `count` pending workloads, 50 in each queue."""
    departments = max(1, count // 2500)
    cluster = Cluster(departments, max(1, count // 50 // departments), quota=1, limit=1)
    token, projects = create_cluster(cluster)
    tiny = count < BATCH
    with server_processes(settings) as processes, processes.client(token) as http:
        await_nodes()
        began = time.monotonic()
        submit(http, (document(f"w{i}", projects[i % len(projects)]) for i in range(count + len(projects))))
        submitted = time.monotonic() - began
        await_phase("running", len(projects))
        await_phase("pending", count, explained=True)
        settled = time.monotonic() - began
        pause = 0.3 if tiny else WINDOW_SECONDS

        def change() -> None:
            submit(http, [document(f"more-{time.monotonic_ns()}", projects[0])])

        windows = 1 if tiny else WINDOWS
        steady = [window(processes, pause, lambda: None) for _ in range(windows)]
        changed = [window(processes, pause, change) for _ in range(windows)]
    return {
        "what": "pending", "workloads": count, "queues": len(projects), "submitted_s": round(submitted, 1),
        "settled_s": round(settled, 1), "steady": middle(steady), "one_change": middle(changed),
    }  # fmt: skip


def window(processes: ServerProcesses, seconds: float, happens: Callable[[], None]) -> Row:
    """Call `happens`, wait `seconds`, and return the scheduler's report for that time."""
    processes.take_report()
    happens()
    time.sleep(seconds)
    report = processes.take_report()
    while report["rounds"] == 0:  # one round takes longer than the window
        time.sleep(seconds)
        report = processes.take_report()
    return report


def middle(reports: Sequence[Row]) -> Row:
    """Return the medians of the main values across all reports."""
    steps = [report["steps_cpu_s"] for report in reports]
    values = {
        "longest_round_cpu_ms": [report["longest_round_cpu_ms"] for report in reports],
        "rounds_cpu_ms": [report["rounds_cpu_s"] * 1000 for report in reports],
        **{f"{step}_ms": [seconds.get(step, 0.0) * 1000 for seconds in steps] for step in STEPS},
    }
    return {name: round(statistics.median(numbers)) for name, numbers in values.items()}


def ends(count: int, settings: dict[str, str]) -> Row:
    """End `count` running workloads within a second, while `count` other workloads are pending."""
    each = -(-count // PROJECTS)
    token, projects = create_cluster(Cluster(quota=each, limit=each))
    count = each * PROJECTS
    with server_processes(settings) as processes, processes.client(token) as http:
        await_nodes()
        for name in ("first", "second"):
            submit(http, (document(f"{name}-{i}", projects[i % len(projects)]) for i in range(count)))
            await_phase("running", count)
        await_phase("pending", count, explained=True)
        cpu = processes.cpu_seconds()
        processes.take_report()
        began = time.monotonic()
        processes.end_running_pods()
        await_phase("completed", count)
        completed = time.monotonic() - began
        await_phase("running", count)
        running = time.monotonic() - began
        report = processes.take_report()
        used = {name: seconds - cpu[name] for name, seconds in processes.cpu_seconds().items()}
    return {
        "what": "ends", "workloads": count, "completed_s": round(completed, 1),
        "successors_run_s": round(running, 1), "longest_round_ms": report["longest_round_ms"],
        "longest_round_cpu_ms": report["longest_round_cpu_ms"],
        "loop_cpu_ms_each": round(used["loop"] / count * 1000, 2), "steps_cpu_s": report["steps_cpu_s"],
    }  # fmt: skip


def edits(count: int, settings: dict[str, str]) -> Row:
    """Measure `count` quota edits while workloads arrive.

    For comparison, the same workloads first arrive without edits.
    """
    token, projects = create_cluster(Cluster())
    scale = 0.003 if count < 100 else kueue.SCALE
    with server_processes(settings) as processes, processes.client(token) as http:
        await_nodes()
        rows = {}
        for label, prefix in (("without_edits", "a-"), ("with_edits", "b-")):
            arrivals = [
                (at, {**sent, "name": prefix + sent["name"]})
                for at, sent in sorted(
                    kueue.generate_arrivals(projects, scale), key=lambda arrival: arrival[0]
                )
            ]
            edited: list[float] = []
            editor = threading.Thread(target=edit, args=(processes, token, projects, count, edited))
            processes.take_report()
            before, began = processes.cpu_seconds(), time.monotonic()
            if label == "with_edits":
                editor.start()
            kueue.submit_in_time(http, arrivals)
            await_phase("completed", len(arrivals), prefix=prefix)
            seconds, report = time.monotonic() - began, processes.take_report()
            cpu = processes.cpu_seconds()
            if label == "with_edits":
                editor.join()
            rows[label] = {
                "workloads_s": round(seconds, 1),
                "loop_cpu_s": round(cpu["loop"] - before["loop"], 1),
                "rounds": report["rounds"],
                "longest_round_ms": report["longest_round_ms"],
            }
    edited.sort()
    return {
        "what": "edits", "edits": count, "per_second": round(count / sum(edited), 1),
        "p50_ms": round(statistics.median(edited) * 1000),
        "p99_ms": round(edited[int(len(edited) * 0.99)] * 1000), **rows,
    }  # fmt: skip


def edit(
    processes: ServerProcesses, token: str, projects: Sequence[str], count: int, seconds: list[float]
) -> None:
    """Edit the projects' quotas in turn. Append the duration of each edit in seconds to `seconds`."""
    tags = dict.fromkeys(projects, '"1"')
    with processes.client(token) as http:
        for number in range(count):
            name = projects[number % len(projects)]
            began = time.perf_counter()
            answer = http.put(
                f"/api/v1/quotas/projects/{name}/{POOL}",
                json={"cpu": 21 + number // len(projects) % 2, "limit": {"cpu": 120}},
                headers={"If-Match": tags[name]},
            )
            seconds.append(time.perf_counter() - began)
            assert answer.status_code == httpx.codes.OK, answer.text
            tags[name] = answer.headers["ETag"]


def document(name: str, project: str) -> Row:
    return {
        "name": name, "project": project, "command": "true", "pools": [POOL],
        "roles": [{"name": "worker", "replicas": 1, "cpu": 1}],
    }  # fmt: skip


def submit(http: httpx.Client, documents: Iterator[Row] | Sequence[Row]) -> None:
    documents = list(documents)
    for first in range(0, len(documents), BATCH):
        answer = http.post("/api/v1/workloads:batch", json={"items": documents[first : first + BATCH]})
        assert answer.status_code == httpx.codes.OK, answer.text[:2000]
        assert answer.json()["rejected"] == 0, answer.text[:2000]


def await_phase(phase: str, count: int, *, explained: bool = False, prefix: str = "") -> None:
    """Wait until `count` workloads are in the phase. With `explained`, only explained workloads count."""
    from projects.models import Workload

    rows = Workload.objects.filter(phase=phase, name__startswith=prefix)
    rows = rows.filter(explained_at__isnull=False) if explained else rows
    wait_until(lambda: rows.count() == count, f"{rows.count()} of {count} workloads are {phase}")


PARTS: dict[str, tuple[Callable[[int, dict[str, str]], Row], int, int]] = {
    "pending": (pending, 50_000, 60),
    "ends": (ends, 10_000, 40),
    "edits": (edits, 1_000, 10),
}


if __name__ == "__main__":
    main()
