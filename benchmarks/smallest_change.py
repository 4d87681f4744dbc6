"""Benchmark the search for smallest changes: `python -m benchmarks.smallest_change [NAME ...]`.

Measure the CPU time to find the smallest change that starts a pending workload, including the layouts, and
count the engine runs.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from benchmarks.decide import RESULTS, commit, machine
from benchmarks.setup.arguments import parser
from benchmarks.setup.shapes import many_request_kinds, one_big_reclaim, one_gpu_short, settings, steady
from berth.core.garbage import relax_garbage_collection
from scheduler.engine.decide import decide
from scheduler.engine.model import NodeShape, Snapshot
from scheduler.engine.smallest_change.search import smallest_change

RUNS = 3
PICKED = (0.0, 0.5, 0.999)  # pending workloads to pick, by their relative position in the queue


def without_any_change(size: int) -> Snapshot:
    """Return a full cluster in which the pending gang can start only if several workloads end."""
    full = settings(one_big_reclaim(size), node_shape=NodeShape(cpu=64_000, memory_mib=500_000))
    return replace(full, workloads=tuple(replace(each, preemptible=False) for each in full.workloads))


SHAPES: Mapping[str, Callable[[], Snapshot]] = {
    "20 kinds wait, 10 full nodes": partial(many_request_kinds, 10, 20),
    "1000 kinds wait, 500 full nodes": partial(many_request_kinds, 500, 1000),
    "a gang is one GPU short, 1000 nodes": partial(one_gpu_short, 1000),
    "no single change, 500 nodes": partial(without_any_change, 500),
    "4000 nodes, 1000 projects, 100000 workloads": partial(steady, 4000, 1000, 100_000),
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help="Part of a shape name.")
    arguments = options.parse_args()
    names = ["20 kinds"] if arguments.tiny else arguments.names
    relax_garbage_collection()
    print(f"{'shape':<46} {'decide ms':>10} {'search ms':>10} {'runs':>5}  change")
    rows = [
        row
        for shape, make in SHAPES.items()
        if not names or any(name in shape for name in names)
        for row in _measure(shape, make())
    ]
    if not names:
        RESULTS.mkdir(exist_ok=True)
        report = {"machine": machine(), "commit": commit(), "runs": RUNS, "rows": rows}
        (RESULTS / "smallest_change.json").write_text(json.dumps(report, indent=1) + "\n")


def _measure(shape: str, snapshot: Snapshot) -> list[dict[str, object]]:
    pending = [rejection.workload for rejection in decide(snapshot).rejections]
    chosen = dict.fromkeys(pending[int(len(pending) * part)] for part in PICKED)
    decided, rows = _median_ms(lambda: decide(snapshot)), []
    for name in chosen:
        result = smallest_change(snapshot, name)
        spent = _median_ms(partial(smallest_change, snapshot, name))
        what = str(result.change.kind if result.change else result.outcome)
        print(f"{shape:<46} {decided:>10.1f} {spent:>10.1f} {result.runs:>5}  {what}", flush=True)
        rows.append(
            {"shape": shape, "decide_ms": decided, "search_ms": spent, "runs": result.runs, "change": what}
        )
    return rows


def _median_ms(step: Callable[[], object]) -> float:
    spent = []
    for _ in range(RUNS):
        start = time.process_time()
        step()
        spent.append((time.process_time() - start) * 1000)
    return round(statistics.median(spent), 1)


if __name__ == "__main__":
    main()
