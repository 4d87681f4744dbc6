"""Benchmark the processes that `make run` starts: `python -m benchmarks.whole_system [--workloads N]`.

The benchmark measures three values:

1. The time from the command to the first page, with an empty home directory and at the second start.
2. Idle memory: the sum of the proportional set sizes of all processes, which counts shared pages once.
3. The time from a REST submission until the scheduler has seen the process run. The pool is ready, and
   workloads are submitted one at a time.
"""

import json
import re
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.decide import RESULTS, commit, machine
from benchmarks.setup.arguments import parser
from berth.client import Client
from berth.client.config import Settings
from tests.journeys.installation import Installation, Visitor, until

Row = dict[str, Any]
REST = 10.0  # seconds until Berth's startup work is done


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--workloads", type=int, default=100)
    arguments = options.parse_args()
    workloads, rest = (1, 0.5) if arguments.tiny else (arguments.workloads, REST)
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as place:
        berth = Installation(Path(place) / "home")
        try:
            rows = [first_page(berth, "first start"), at_rest(berth, rest)]
            rows.append(submissions(berth, workloads))
            berth.end()
            rows.append(first_page(berth, "second start"))
        finally:
            berth.clear()
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if arguments.tiny:
        return
    RESULTS.mkdir(exist_ok=True)
    answer = {"machine": machine(), "commit": commit(), "rows": rows}
    (RESULTS / "whole_system.json").write_text(json.dumps(answer, indent=1) + "\n")


def first_page(berth: Installation, label: str) -> Row:
    began = time.perf_counter()
    visitor = Visitor(berth.start("--demo"))
    until(lambda: visitor.get("/login")[0] == 200)
    return {"what": label, "seconds_to_first_page": round(time.perf_counter() - began, 2)}


def at_rest(berth: Installation, seconds: float) -> Row:
    until(lambda: berth.children().keys() == berth.names.keys())
    time.sleep(seconds)
    sizes = {pid: memory_share_kib(pid) for pid in berth.processes()}
    return {"what": "memory at rest", "processes": len(sizes), "mib": round(sum(sizes.values()) / 1024)}


def memory_share_kib(pid: int) -> int:
    """Return the process's proportional set size in KiB."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    match = re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)
    return int(match.group(1)) if match else 0


def submissions(berth: Installation, count: int) -> Row:
    address = f"http://127.0.0.1:{berth.port}"
    password = (berth.home / "admin-password").read_text().strip()
    with Client(Settings(address, "", "")) as stranger:
        token = stranger.sign_in("admin", password)
    with Client(Settings(address, token, "vision")) as client:
        for number in range(3):  # the pool scales up for the first workload, which is not measured
            latency(client, f"warm-{number}")
        seconds = sorted(latency(client, f"w-{number}") for number in range(count))
    return {
        "what": "submit to running",
        "workloads": count,
        "p50_ms": round(statistics.median(seconds) * 1000),
        "p99_ms": round(seconds[int(len(seconds) * 0.99)] * 1000),
    }


def latency(client: Client, name: str) -> float:
    """Submit a workload, and return the seconds until its `running` event."""
    began = time.time()
    submitted = client.workloads.submit(
        {"name": name, "project": "vision", "command": "sleep 0.5", "roles": [{"replicas": 1, "gpu": 1}]}
    )

    def running() -> datetime | None:
        events = client.workloads.events(submitted.id)
        return next((event.at for event in events if event.kind == "running"), None)

    at = until(running)
    until(lambda: client.workloads.get(submitted.id).has_ended)
    return at.timestamp() - began


if __name__ == "__main__":
    main()
