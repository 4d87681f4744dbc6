"""Benchmark a single scheduling decision on typical cluster sizes: `python -m benchmarks.decide [NAME ...]`.

The measured time includes building the layout, but not the snapshot, which is timed separately. Peak memory
is measured in a separate run. Results are printed and written to benchmarks/results/.
"""

import gc
import json
import platform
import statistics
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarks.setup.arguments import parser
from benchmarks.setup.shapes import CHANGES, SHAPES, settings, steady
from berth.core.garbage import relax_garbage_collection
from scheduler.engine.decide import decide, decide_with_layout
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Evict, Place, Plan
from scheduler.simulator.simulation import SimulatedCluster

RUNS = 5
Answer = TypeVar("Answer")
STEADY = (4000, 1000, 100_000)  # (nodes, projects, workloads)
ROWS = 100  # number of rows that change between two cycles
RESULTS = Path(__file__).parent / "results"


TINY_SHAPES = ("20 queues", "carried")
TINY_STEADY = (10, 5, 1_000)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help="Part of a shape name.")
    arguments = options.parse_args()
    names = TINY_SHAPES if arguments.tiny else arguments.names

    def is_chosen(name: str) -> bool:
        return not names or any(word in name for word in names)

    relax_garbage_collection()  # the scheduler also does this
    heads = ("cpu ms", "least", "MiB", "placed", "evicted", "waiting")
    print(f"{'shape':<52} " + " ".join(f"{head:>9}" for head in heads))
    rows = [_measure(name, make) for name, make in SHAPES.items() if is_chosen(name)]
    if any(map(is_chosen, CHANGES)):
        rows += _measure_reused_layout(is_chosen, TINY_STEADY if arguments.tiny else STEADY)
    if not names:
        RESULTS.mkdir(exist_ok=True)
        answer = {"machine": machine(), "commit": commit(), "runs": RUNS, "shapes": rows}
        (RESULTS / "decide.json").write_text(json.dumps(answer, indent=1) + "\n")


def _measure(name: str, make: Callable[[], Snapshot]) -> dict[str, object]:
    start = time.process_time()
    snapshot = make()
    made = time.process_time() - start
    runs = [_timed(lambda: decide(snapshot)) for _ in range(RUNS)]
    peak = _peak(lambda: decide(snapshot))
    return _row(name, [spent for spent, _ in runs], runs[-1][1], peak, made)


def _measure_reused_layout(
    is_chosen: Callable[[str], bool], size: tuple[int, int, int]
) -> Iterator[dict[str, object]]:
    """Yield measurements of cycles that reuse the previous cycle's layout.

    Changes between the cycles are not timed. The time to read the rejections is measured separately.
    """
    for name, (change, changed) in CHANGES.items():
        if not is_chosen(name):
            continue
        snapshot = settings(steady(*size), **changed)
        plan, layout = decide_with_layout(snapshot, None)
        spent = []
        for turn in range(RUNS + 1):
            world = SimulatedCluster(snapshot)
            world.apply_plan(plan)
            snapshot = change(world.snapshot(), ROWS, turn)
            seconds, (plan, layout) = _timed(partial(decide_with_layout, snapshot, layout))
            spent.append(seconds)
        read, _ = _timed(partial(len, plan.rejections))  # measure before anything else reads the rejections
        row = _row(name, spent[1:], plan, None, None)
        row["read_ms"] = round(read * 1000, 2)
        yield row


def _timed(step: Callable[[], Answer]) -> tuple[float, Answer]:
    gc.collect()
    start = time.process_time()
    answer = step()
    return time.process_time() - start, answer


def _peak(step: Callable[[], object]) -> float:
    """Return the peak memory that `step` allocates, in MiB."""
    gc.collect()
    tracemalloc.start()
    step()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(most / 2**20, 1)


def _row(
    name: str, spent: list[float], plan: Plan, peak: float | None, made: float | None
) -> dict[str, object]:
    steps = [step for bundle in plan.bundles for step in bundle.steps]
    row: dict[str, object] = {
        "name": name,
        "cpu_ms": round(statistics.median(spent) * 1000, 2),  # CPU time does not depend on other load
        "least_ms": round(min(spent) * 1000, 2),
        "peak_mib": peak,
        "snapshot_ms": None if made is None else round(made * 1000, 1),
        "placed": sum(isinstance(step, Place) for step in steps),
        "evicted": sum(isinstance(step, Evict) for step in steps),
        "waiting": len(plan.rejections),
    }
    print(
        f"{name:<52} {row['cpu_ms']:>9} {row['least_ms']:>9} {peak or '-':>9} {row['placed']:>9} "
        f"{row['evicted']:>9} {row['waiting']:>9}",
        flush=True,
    )
    return row


def machine() -> str:
    return f"{platform.processor() or platform.machine()}, Python {platform.python_version()}"


def commit() -> str:
    process = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return process.stdout.strip()


if __name__ == "__main__":
    main()
