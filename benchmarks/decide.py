"""Here we measure one decision on clusters of the usual sizes: `python -m benchmarks.decide [NAME ...]`.

Only `decide` is timed, the snapshot is made before. Results are printed and written to benchmarks/results/.
"""

import gc
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "platform")]

from benchmarks.shapes import SHAPES  # noqa: E402
from scheduler.engine.cycle import decide  # noqa: E402
from scheduler.engine.model import Snapshot  # noqa: E402
from scheduler.engine.plan import Evict, Place, Plan  # noqa: E402

RUNS = 5
RESULTS = Path(__file__).parent / "results"


def main(names: list[str]) -> None:
    chosen = {name: make for name, make in SHAPES.items() if not names or any(n in name for n in names)}
    print(f"{'shape':<52} {'ms':>9} {'cpu ms':>9} {'placed':>7} {'evicted':>7} {'waiting':>7}")
    rows = [row for name, make in chosen.items() for row in _measured(name, make)]
    RESULTS.mkdir(exist_ok=True)
    answer = {"machine": machine(), "commit": commit(), "runs": RUNS, "shapes": rows}
    if not names:
        (RESULTS / "decide.json").write_text(json.dumps(answer, indent=1) + "\n")


def _measured(name: str, make: Callable[[], Snapshot]) -> Iterator[dict[str, object]]:
    snapshot, seconds, busy, plan = make(), [], [], Plan()
    for _ in range(RUNS):
        gc.collect()
        start, cpu = time.perf_counter(), time.process_time()
        plan = decide(snapshot)
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - cpu)
    steps = [step for bundle in plan.bundles for step in bundle.steps]
    row = {
        "name": name,
        "median_ms": round(statistics.median(seconds) * 1000, 2),
        "cpu_ms": round(statistics.median(busy) * 1000, 2),  # what a machine of its own would take
        "placed": sum(isinstance(step, Place) for step in steps),
        "evicted": sum(isinstance(step, Evict) for step in steps),
        "waiting": len(plan.refusals),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(
        f"{name:<52} {row['median_ms']:>9} {row['cpu_ms']:>9} {row['placed']:>7} "
        f"{row['evicted']:>7} {row['waiting']:>7}",
        flush=True,
    )
    yield row


def machine() -> str:
    return f"{platform.processor() or platform.machine()}, Python {platform.python_version()}"


def commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
