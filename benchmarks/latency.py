"""Benchmark the time from submission to running pod: `python -m benchmarks.latency [--workloads N]`.

Workloads are submitted to a real Berth at random times, mostly one at a time and sometimes a few at once.
Capacity is always free. The measurement ends when the transaction that stores the start of the workload has
committed. The output shows percentiles of each stage, and the slowest submissions with the scheduler's steps
during that time.
"""

import json
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

from benchmarks.decide import RESULTS, commit, machine
from benchmarks.setup.arguments import parser
from benchmarks.setup.own_database import copy_template
from benchmarks.setup.processes.timed_preload import STEPS
from benchmarks.setup.stages import (
    PERCENTS,
    TOTAL,
    Steps,
    Submitted,
    cpu_milliseconds,
    milliseconds,
    moments,
    percentile,
    table,
)
from berth.client import Client
from berth.client.config import Settings
from berth.db.embedded.cluster import EmbeddedCluster
from tests.journeys.installation import Installation, until

THINK_SECONDS = (0.05, 0.4)
SINGLE = 0.8  # share of times at which only one workload is submitted; at the others, two to four are
COMMANDS = ("true", "sleep 0.05")
LIVE = ("pending", "starting", "running", "stopping")
LIMIT_MS = 300
SLOWEST = 10
SHOWN_STEPS = (
    "woken",
    "tick",
    "reported",
    "cycle.observed",
    "commit.done",
    "reports.done",
    "cycle.done",
    "slow",
)
ROWS = """
    SELECT w.name, p.id::text, extract(epoch FROM p.started_at), extract(epoch FROM min(e.at)),
           extract(epoch FROM min(e.at) FILTER (WHERE e.kind = 'starting')),
           extract(epoch FROM min(e.at) FILTER (WHERE e.kind = 'running'))
      FROM projects_workload w
      JOIN projects_pod p ON p.workload_id = w.id
      JOIN projects_event e ON e.workload_id = w.id
     GROUP BY w.id, p.id
"""


@dataclass(frozen=True)
class Times:
    """Unix times at which the client sent a request and received the response."""

    sent: float
    answered: float


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--workloads", type=int, default=1000)
    options.add_argument("--seed", type=int, default=1)
    arguments = options.parse_args()
    count = 3 if arguments.tiny else arguments.workloads
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as place:
        steps = Path(place) / "steps"
        steps.mkdir()
        settings = {"BERTH_RATE_READ": "1000000000", "BERTH_RATE_WRITE": "1000000000", STEPS: str(steps)}
        berth = Installation(
            Path(place) / "home", module="benchmarks.setup.processes.timed_up", settings=settings
        )
        copy_template(berth.home)
        try:
            berth.start("--demo")
            times = submit_all(berth, count, random.Random(arguments.seed))
            submitted = read_rows(berth, times)
            berth.end()
        finally:
            berth.clear()
        web, scheduler = Steps.read(steps / "web"), Steps.read(steps / "scheduler")
    rows = [(each, moments(each, web, scheduler)) for each in submitted]
    durations = [milliseconds(each, at) for each, at in rows]
    print(table(durations, [cpu_milliseconds(at, scheduler) for _, at in rows]))
    over = sum(row[TOTAL] > LIMIT_MS for row in durations)
    print(f"{over} of {len(rows)} submissions took more than {LIMIT_MS} ms")
    for at, row in sorted(
        zip((at for _, at in rows), durations, strict=True), key=lambda pair: -pair[1][TOTAL]
    )[:SLOWEST]:
        print(describe(at, row, scheduler))
    if not arguments.tiny:
        store(durations, over)


def submit_all(berth: Installation, count: int, chance: random.Random) -> dict[str, Times]:
    """Submit `count` workloads at random times, and wait until all have ended.

    Return their request times by name.
    """
    address = f"http://127.0.0.1:{berth.port}"
    password = (berth.home / "admin-password").read_text().strip()
    with Client(Settings(address, "", "")) as stranger:
        token = stranger.sign_in("admin", password)
    times: dict[str, Times] = {}
    with Client(Settings(address, token, "vision")) as client:
        # enough nodes, so that no workload has to wait for one
        client.node_pools.edit("local", {"nodes_min": 4})
        until(lambda: client.node_pools.get("local").nodes_ready == 4)
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=address, headers=headers, timeout=60, trust_env=False) as http:
            for number in range(3):
                submit(http, f"warm-{number}", "true", {})
            while len(times) < count:
                time.sleep(chance.uniform(*THINK_SECONDS))
                together = 1 if chance.random() < SINGLE else chance.randint(2, 4)
                names = [f"w-{len(times) + number}" for number in range(min(together, count - len(times)))]
                submit_together(http, names, chance.choice(COMMANDS), times)
        until(lambda: not any([*client.workloads.list(phase=phase, limit=1)] for phase in LIVE))
    return times


def submit_together(http: httpx.Client, names: Sequence[str], command: str, times: dict[str, Times]) -> None:
    threads = [threading.Thread(target=submit, args=(http, name, command, times)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def submit(http: httpx.Client, name: str, command: str, times: dict[str, Times]) -> None:
    roles = [{"name": "worker", "replicas": 1, "gpu": 0.25, "cpu": "100m"}]
    document = {"name": name, "project": "vision", "command": command, "roles": roles}
    sent = time.time()
    response = http.post("/api/v1/workloads", json=document)
    times[name] = Times(sent, time.time())
    assert response.status_code == httpx.codes.CREATED, response.text


def read_rows(berth: Installation, times: dict[str, Times]) -> list[Submitted]:
    with psycopg.connect(EmbeddedCluster(berth.home / "postgres").url()) as database:
        rows = database.execute(ROWS).fetchall()
    result = []
    for name, pod, started, *events in rows:
        if name in times:
            stored, placed, recorded = map(float, events)
            request = (times[name].sent, times[name].answered)
            result.append(Submitted(name, pod, *request, stored, placed, float(started), recorded))
    assert len(result) == len(times), "every workload has one pod"
    return result


def describe(at: dict[str, float], row: dict[str, float], scheduler: Steps) -> str:
    """Format the stages of one submission and the scheduler's steps during that time."""
    stages = ", ".join(f"{stage} {value:.0f}" for stage, value in row.items() if value >= 1)
    meanwhile = ", ".join(
        f"{(when - at['sent']) * 1000:.0f} {step} {details}".strip()
        for when, step, details in scheduler.between(at["sent"] - 0.05, at["stored"], SHOWN_STEPS)
    )
    return f"{row[TOTAL]:.0f} ms: {stages}\n    {meanwhile}"


def store(durations: Sequence[dict[str, float]], over: int) -> None:
    figures: dict[str, Any] = {
        stage: {
            f"p{percent}": round(percentile([row[stage] for row in durations], percent), 1)
            for percent in PERCENTS
        }
        for stage in durations[0]
    }
    RESULTS.mkdir(exist_ok=True)
    answer = {
        "machine": machine(), "commit": commit(), "workloads": len(durations), f"over_{LIMIT_MS}_ms": over,
        "milliseconds": figures,
    }  # fmt: skip
    (RESULTS / "latency.json").write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
