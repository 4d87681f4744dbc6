"""Benchmark explanations of pending workloads: `python -m benchmarks.explaining [LIVE ...]`.

Measure the server's CPU time for one REST request that includes the fair-share explanation. Before the first
cycle, the request reads all live workloads. After it, the request reads the records of the last cycle. All
workloads are pending.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.setup.arguments import parser
from benchmarks.setup.own_database import own_cluster
from benchmarks.ticks import NOON, stage

RUNS = 7
SIZES = (5_000, 20_000)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("sizes", nargs="*", type=int, metavar="LIVE", help="Numbers of live workloads.")
    options.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.inside:
        print(json.dumps(measure_in_database(arguments.inside)))
    else:
        measure([200] if arguments.tiny else arguments.sizes or SIZES, keep=not arguments.tiny)


def measure(sizes: Sequence[int], *, keep: bool) -> None:
    rows = []
    for live in sizes:
        temporary = tempfile.TemporaryDirectory(prefix="berth-explaining-")
        with temporary as place, own_cluster(Path(place)) as cluster:
            os.environ["DATABASE_URL"], os.environ["BERTH_HOME"] = cluster.url(), place
            # A process reads its settings only once, so each size needs its own process.
            inside = [sys.executable, "-m", "benchmarks.explaining", "--inside", str(live)]
            answer = subprocess.run(inside, stdout=subprocess.PIPE, text=True, check=True).stdout
            print(answer, end="", flush=True)
            rows.append(json.loads(answer.splitlines()[-1]))
    from benchmarks.decide import RESULTS, commit, machine

    if not keep:
        return
    RESULTS.mkdir(exist_ok=True)
    report = {"machine": machine(), "commit": commit(), "runs": RUNS, "rows": rows}
    (RESULTS / "explaining.json").write_text(json.dumps(report, indent=1) + "\n")


def measure_in_database(live: int) -> dict[str, Any]:
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    from projects.models import Workload
    from scheduler.loop.decide import decide_pools
    from scheduler.loop.observe.specs import SpecCache
    from scheduler.loop.observe.view import observe
    from scheduler.reports.queues.queue_statuses import store_queue_statuses
    from scheduler.reports.queues.queue_totals import totals_by_queue

    call_command("migrate", verbosity=0)
    stage(live)
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(username="bench"))
    last = Workload.objects.order_by("pk")[live // 2]

    def answer_times() -> list[float]:
        spent = []
        for _ in range(RUNS + 1):
            start = time.process_time()
            response = client.get(f"/api/v1/workloads/{last.pk}/explain")
            spent.append((time.process_time() - start) * 1000)
            assert response.status_code == 200, response.content
        return spent[1:]

    before = answer_times()
    seen = observe(NOON, SpecCache())
    store_queue_statuses(seen, decide_pools(seen.snapshot).queues, totals_by_queue())
    after = answer_times()
    names = ("before_the_first_cycle", "from_what_it_wrote")
    return {"live": live} | {
        name: {"median_ms": round(statistics.median(spent), 1), "least_ms": round(min(spent), 1)}
        for name, spent in zip(names, (before, after), strict=True)
    }


if __name__ == "__main__":
    main()
