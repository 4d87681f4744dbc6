"""Benchmark placement on the openb cluster: `python -m benchmarks.openb [--moves] [--seeds 42 43 ...]`.

Nodes and pods come from the public trace of Alibaba's GPU cluster (gpu-v2023, "openb"), with 1,213 nodes and
6,212 GPUs. For each seed, nodes and pods are shuffled, and pods are drawn until they request 130% of all
GPUs. Pods never end, and the engine places all of them in one decision.
"""

import csv
import json
import os
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.decide import RESULTS, commit, machine
from benchmarks.setup.arguments import parser
from berth.core.values.amounts import MILLI, Bounds
from scheduler.engine.decide import decide
from scheduler.engine.model import (
    Node,
    Pool,
    PoolQuota,
    Queue,
    Request,
    Role,
    RoleGroup,
    Snapshot,
    Strategy,
    Workload,
)
from scheduler.engine.plan import Evict, Place, Plan

DATA = Path(os.environ.get("BERTH_BENCH_DATA", Path(__file__).parents[2] / "shared" / "data")) / "openb"
SEEDS, LISTS, POINTS, ARRIVING = range(42, 52), ("default", "gpuspec10"), (80, 90, 95, 100, 130), 130
Row = dict[str, str]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    options.add_argument("--lists", nargs="*", default=LISTS)
    options.add_argument("--placement", nargs="*", default=["fragmentation", "binpack"])
    options.add_argument("--moves", action="store_true", help="Consolidate at the end, and count the moves.")
    arguments = options.parse_args()
    if arguments.tiny:
        arguments.seeds, arguments.lists = [42], LISTS[:1]
    if not DATA.is_dir():
        print(f"skipped: {DATA} is missing; the trace is Alibaba's public clusterdata, gpu-v2023")
        return
    points = "".join(f"{point:>8}%" for point in POINTS)
    print(f"{'list':<10} {'placement':<14}{points}   CPU s   moves")
    rows = [
        measured(name, Strategy(word), arguments.seeds, arguments.moves)
        for name in arguments.lists
        for word in arguments.placement
    ]
    RESULTS.mkdir(exist_ok=True)
    if not arguments.moves and arguments.seeds == list(SEEDS) and tuple(arguments.lists) == LISTS:
        answer = {"machine": machine(), "commit": commit(), "seeds": arguments.seeds, "rows": rows}
        (RESULTS / "openb.json").write_text(json.dumps(answer, indent=1) + "\n")


def measured(name: str, strategy: Strategy, seeds: Sequence[int], moves: bool) -> dict[str, object]:
    nodes = list(csv.DictReader((DATA / "openb_node_list_gpu_node.csv").open()))
    pods = list(csv.DictReader((DATA / f"openb_pod_list_{name}.csv").open()))
    started, cpu = time.perf_counter(), time.process_time()
    curves, moved = [], 0
    for seed in seeds:
        snapshot = arrivals(nodes, pods, random.Random(seed), strategy)
        plan = decide(snapshot, None if moves else ("allocate",))
        curves.append(allocation_curve(snapshot, plan))
        steps = [step for bundle in plan.bundles for step in bundle.steps]
        moved += sum(isinstance(step, Evict) for step in steps)
    row = {
        "list": name,
        "placement": strategy.value,
        "allocated": [
            round(statistics.mean(allocation_at(curve, point) for curve in curves), 2) for point in POINTS
        ],
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "seconds": round(time.perf_counter() - started, 1),
        "moves": moved,
    }
    figures = "".join(f"{percent:>9.2f}" for percent in row["allocated"])  # type: ignore[attr-defined]
    print(f"{name:<10} {strategy.value:<14}{figures} {row['cpu_seconds']:>7} {moved:>7}", flush=True)
    return row


def arrivals(nodes: Sequence[Row], pods: Sequence[Row], chance: random.Random, by: Strategy) -> Snapshot:
    """Return a snapshot with all pods pending in one queue. The first pod has been pending longest."""
    nodes = chance.sample(nodes, len(nodes))
    capacity = sum(int(node["gpu"]) for node in nodes) * MILLI
    line = draw_pods(pods, chance, capacity * ARRIVING // 100)
    unlimited = {"openb": PoolQuota(Bounds(None, None, None))}
    return Snapshot(
        0,
        (Pool("openb", by, by),),
        tuple(_node(f"n{place:04}", row) for place, row in enumerate(nodes)),
        (Queue("all", None, 0, unlimited), Queue("one", "all", 0, unlimited)),
        tuple(_workload(f"w{place:05}", place, row) for place, row in enumerate(line)),
    )


def draw_pods(pods: Sequence[Row], chance: random.Random, most: int) -> list[Row]:
    """Shuffle the pods, then remove or repeat random pods until they request almost `most` milli-GPUs."""
    line = chance.sample(pods, len(pods))
    total = sum(map(gpus, line))
    while total > most:
        total -= gpus(line.pop(chance.randrange(len(line))))
    while total + gpus(drawn := chance.choice(pods)) <= most:
        line.append(drawn)
        total += gpus(drawn)
    return line


def gpus(row: Row) -> int:
    return int(row["num_gpu"]) * int(row["gpu_milli"] or 0)


def _node(name: str, row: Row) -> Node:
    cpu, memory = int(row["cpu_milli"]), int(row["memory_mib"])
    return Node(name, "openb", int(row["gpu"]), row["model"], 0, cpu, memory, max_pods=10_000)


def _workload(name: str, at: int, row: Row) -> Workload:
    devices, cpu, memory = int(row["num_gpu"]), int(row["cpu_milli"]), int(row["memory_mib"])
    request = Request(int(row["gpu_milli"] or 0) if devices else 0, devices, 0, cpu, memory, cpu, memory)
    models = tuple(sorted(set(filter(None, (row.get("gpu_spec") or "").split("|")))))
    role = Role("pod", 1, 1, request, gpu_models=models)
    return Workload(name, "one", RoleGroup(name, (role,), 1), ("openb",), submitted=at)


def allocation_curve(snapshot: Snapshot, plan: Plan) -> dict[int, float]:
    """Return the mean GPU allocation at each level of cumulative requests, both in percent of all GPUs."""
    capacity = sum(node.gpus for node in snapshot.nodes) * MILLI
    placed = {step.workload for bundle in plan.bundles for step in bundle.steps if isinstance(step, Place)}
    arrived = allocated = 0
    points: dict[int, list[float]] = {}
    for workload in snapshot.workloads:
        request = workload.tree.children[0].request  # type: ignore[union-attr]
        arrived += request.amounts.gpu
        allocated += request.amounts.gpu if workload.name in placed else 0
        points.setdefault(round(100 * arrived / capacity), []).append(100 * allocated / capacity)
    return {x: statistics.mean(values) for x, values in points.items()}


def allocation_at(allocated: dict[int, float], point: int) -> float:
    """Return the GPU allocation in percent at the highest level of requests up to `point` percent."""
    return allocated[max((arrived for arrived in allocated if arrived <= point), default=min(allocated))]


if __name__ == "__main__":
    main()
