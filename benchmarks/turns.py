"""Simulate how queues take turns on a 16-GPU node when each requests more than its share.

`python -m benchmarks.turns [NAME ...]` simulates 1,024 cycles with 100 endless jobs per queue, a half-life of
128 cycles, a window of 256 cycles and K 1.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from benchmarks.decide import RESULTS, commit, machine
from benchmarks.setup.arguments import parser
from scheduler.engine.decide import decide
from scheduler.simulator import load
from scheduler.simulator.simulation import SimulatedCluster
from scheduler.simulator.usage import UsageMeter, allocated_by_queue

GPUS, JOBS, CYCLES = 16, 100, 1024
MODE = {"mode": "time_based", "half_life": 128, "window": 256, "k": 1.0}


@dataclass(frozen=True)
class Case:
    sizes: Sequence[Sequence[int]]  # GPUs of each queue's jobs, in order
    weights: Sequence[float] = ()
    departments: Sequence[str] = ()
    mode: Mapping[str, Any] = field(default_factory=dict)


CASES: Mapping[str, Case] = {
    "2 queues of 16": Case([[16]] * 2),
    "2 queues of 9": Case([[9]] * 2),
    "3 queues of 16": Case([[16]] * 3),
    "3 queues of 9": Case([[9]] * 3),
    "6 queues of 16": Case([[16]] * 6),
    "3 queues of 16, weights 3 2 1": Case([[16]] * 3, weights=[3, 2, 1]),
    "16 against 4 and 4": Case([[16], [4], [4]]),
    "16 against 9 and 1": Case([[16], [9], [1]]),
    "3 against 1": Case([[3], [1]]),
    "4 against 3 and 2": Case([[4], [3], [2]]),
    "8 against 3 and 1": Case([[8], [3], [1]]),
    "2 departments, 2 and 1 queues of 16": Case([[16]] * 3, departments=["a", "a", "b"]),
    "2 departments, 9 and 4 against 1": Case([[9], [4], [1]], departments=["a", "a", "b"]),
    "2 departments, 16 and 1 against 1": Case([[16], [1], [1]], departments=["a", "a", "b"]),
    "3 queues of 16, window alone": Case([[16]] * 3, mode={"half_life": None}),
    "3 queues of 16, calendar": Case([[16]] * 3, mode={"half_life": None, "tumbling": True}),
    "2 queues of 16, calendar": Case([[16]] * 2, mode={"half_life": None, "tumbling": True}),
    "2 queues of 16, K 0": Case([[16]] * 2, mode={"k": 0.0}),
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help="Part of a case name.")
    arguments = options.parse_args()
    names, cycles = (["2 queues of 16"], 32) if arguments.tiny else (arguments.names, CYCLES)
    chosen = {name: case for name, case in CASES.items() if not names or any(n in name for n in names)}
    rows = []
    for name, case in chosen.items():
        row = {"name": name, **measured(case, cycles)}
        rows.append(row)
        parts = "  ".join(
            f"{queue['part']:.3f} (turn {queue['longest_turn']}, wait {queue['longest_wait']})"
            for queue in row["queues"]
        )
        print(f"{name:<38} {row['evictions']:>5} evictions  {row['cpu_seconds']:>6} s   {parts}", flush=True)
    RESULTS.mkdir(exist_ok=True)
    if not names:
        answer = {"machine": machine(), "commit": commit(), "cycles": CYCLES, "cases": rows}
        (RESULTS / "turns.json").write_text(json.dumps(answer, indent=1) + "\n")


def measured(case: Case, cycles: int = CYCLES) -> dict[str, Any]:
    begin, evictions = time.process_time(), 0
    held: list[list[float]] = []
    for gpus, stopped in _simulate(case, cycles):
        held.append(gpus)
        evictions += stopped
    whole = sum(map(sum, held)) or 1.0
    queues = [
        {
            "part": round(sum(mine) / whole, 4),
            "longest_turn": _longest_run(mine, holding=True),
            "longest_wait": _longest_run(mine, holding=False),
        }
        for mine in zip(*held, strict=True)
    ]
    return {"queues": queues, "evictions": evictions, "cpu_seconds": round(time.process_time() - begin, 1)}


def _simulate(case: Case, cycles: int) -> Iterator[tuple[list[float], int]]:
    """After each cycle, yield the GPUs allocated to each queue and the number of evictions."""
    scenario = load(_document(case))
    world, meter = SimulatedCluster(scenario.snapshot), UsageMeter(scenario.snapshot)
    names = [f"q{number}" for number in range(len(case.sizes))]
    for _ in range(cycles):
        snapshot = world.snapshot()
        plan = decide(replace(snapshot, queues=meter.with_usage(snapshot.queues)))
        world.apply_plan(plan)
        now = world.snapshot()
        gpus = allocated_by_queue(now)
        yield (
            [gpus["default", name].gpu / 1000 if ("default", name) in gpus else 0.0 for name in names],
            sum(eviction.whole for bundle in plan.bundles for eviction in bundle.evictions),
        )
        meter.advance(now, plan, world.now + 1)
        world.advance(1)


def _document(case: Case) -> dict[str, Any]:
    above = case.departments or ["d"] * len(case.sizes)
    weights = case.weights or [1] * len(case.sizes)
    return {
        "format": "berth.scenario/1",
        "pools": [{"name": "default", "fairshare": {**MODE, **case.mode}}],
        "nodes": [{"name": "n", "gpus": GPUS}],
        "departments": [{"name": name, "quotas": {"default": {"gpu": 0}}} for name in sorted(set(above))],
        "projects": [
            {"name": f"q{q}", "department": above[q], "quotas": {"default": {"gpu": 0, "weight": weights[q]}}}
            for q in range(len(case.sizes))
        ],
        "workloads": [
            {"name": f"q{q}-{j:03}", "project": f"q{q}", "roles": [{"gpu": sizes[j % len(sizes)]}]}
            for q, sizes in enumerate(case.sizes)
            for j in range(JOBS)
        ],
    }


def _longest_run(mine: Sequence[float], holding: bool) -> int:
    runs = (len(list(run)) for has, run in groupby(gpus > 0 for gpus in mine) if has is holding)
    return max(runs, default=0)


if __name__ == "__main__":
    main()
