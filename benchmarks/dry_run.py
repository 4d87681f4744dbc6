"""Benchmark the live preview of the submission page in a large installation: `python -m benchmarks.dry_run`.

The scheduler has processed 10,000 one-GPU workloads of 30 projects on 500 nodes: 4,000 are running and 6,000
are pending. The benchmark measures the CPU time of the web process for preview requests: the first one with
an empty cache, and the minimum and median of seven more. Before each of the seven, a workload of a different
user changes.
"""

import json
import statistics
import time
from typing import Any

from benchmarks.setup.arguments import parser
from benchmarks.setup.own_database import own_database

LIVE, WAITING_OF_10, GPUS_OF_NODE, TIMES = 10_000, 6, 8, 7
DOCUMENTS = {
    "would wait": {"gpu": 1, "replicas": 4},
    "would wait, of many nodes": {"gpu": 8, "replicas": 16},
    "would never start": {"gpu": 64, "replicas": 1},
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("live", nargs="?", type=int, default=LIVE, help="Number of live workloads.")
    arguments = options.parse_args()
    live = 80 if arguments.tiny else arguments.live
    with own_database("dry-run"):
        rows = _measure(live)
    from benchmarks.decide import RESULTS, commit, machine

    if live == LIVE:
        answer = {"machine": machine(), "commit": commit(), "live": live, "rows": rows}
        (RESULTS / "dry_run.json").write_text(json.dumps(answer, indent=1) + "\n")


def _measure(live: int) -> list[dict[str, Any]]:
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client

    from benchmarks.ticks import stage
    from projects.models import Workload

    settings.ALLOWED_HOSTS = ["*"]
    loop, _, clock = stage(live, live * (10 - WAITING_OF_10) // 10 // GPUS_OF_NODE)
    for _ in range(3):
        loop.tick()
        clock.advance(1)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    print(f"{Workload.objects.filter(phase='running').count()} of {live} workloads are running")
    client, rows = Client(), []
    client.force_login(User.objects.get(username="bench"))
    _measure_response(client, {"gpu": 1, "replicas": 1})  # exclude the code that a process loads only once
    for label, role in DOCUMENTS.items():
        first = _measure_first(client, role)
        later = [_measure_after_change(client, role, number) for number in range(TIMES)]
        row = {
            "what": label, "first_cpu_ms": first,
            "cpu_ms": min(later), "middle_cpu_ms": round(statistics.median(later)),
        }  # fmt: skip
        rows.append(row)
        print(row)
    return rows


def _measure_first(client: Any, role: dict[str, int]) -> int:
    """Clear the caches and measure a response."""
    from scheduler.reports.what_if import what_if_cache

    what_if_cache._shared = what_if_cache.WhatIfCache()
    what_if_cache.SPEC_CACHE._specs.clear()
    return _measure_response(client, role)


def _measure_after_change(client: Any, role: dict[str, int], number: int) -> int:
    from projects.models import Workload

    waiting = Workload.objects.filter(phase="pending").order_by("pk")
    Workload.objects.filter(pk=waiting[number].pk).update(priority=60 + number)
    return _measure_response(client, role)


def _measure_response(client: Any, role: dict[str, int]) -> int:
    document = {
        "name": "asked", "project": "p03", "pools": ["bench"], "command": "python train.py",
        "roles": [{"name": "worker", "cpu": 4, "memory_mib": 16384, **role}],
    }  # fmt: skip
    before = time.process_time()
    answer = client.post("/submit/prediction", {"document": json.dumps(document)})
    spent = time.process_time() - before
    page = answer.content.decode()
    assert "Would be queued" in page or "Can never start" in page, page
    return round(spent * 1000)


if __name__ == "__main__":
    main()
