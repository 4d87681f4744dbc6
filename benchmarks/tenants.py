"""Replay six weeks of a real multi-tenant trace under each policy.

Run `python -m benchmarks.tenants [--whole] [--checkpoint SECONDS] [POLICY ...]`. Berth's own policy replays
the first 6,000 jobs, or all jobs with `--whole`, which takes minutes. The data is read from BERTH_TRACES or
../shared/data. Without data, the benchmark is skipped.
"""

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.decide import RESULTS, commit, machine
from benchmarks.setup.arguments import parser
from berth.core.garbage import relax_garbage_collection
from scheduler.simulator.replay.figures import summary_figures
from scheduler.simulator.replay.files import TraceNotFound, load_trace, shrink_trace
from scheduler.simulator.replay.policies import Policy, play
from scheduler.simulator.replay.records import Records
from scheduler.simulator.replay.trace import Trace

# Published average and p99 wait (seconds) and utilization for the same weeks, nodes and quotas.
REFERENCE = {
    Policy.STATIC_FIFO: (133_880, 1_361_633, 0.582),
    Policy.STATIC_SKIP: (42_485, 896_076, 0.599),
    Policy.FIFO: (4_734, 63_137, 0.744),
    Policy.SKIP: (835, 18_009, 0.745),
}


SLICE = 6_000  # number of jobs that Berth's policy replays without --whole


def main() -> int:
    options = parser(__doc__)
    options.add_argument("policies", nargs="*", metavar="POLICY", type=Policy)
    options.add_argument("--whole", action="store_true")
    options.add_argument("--checkpoint", type=int, metavar="SECONDS")
    arguments = options.parse_args()
    jobs = 200 if arguments.tiny else SLICE
    relax_garbage_collection()  # `berth trace` also does this
    data = Path(os.environ.get("BERTH_TRACES", Path(__file__).parents[2] / "shared" / "data"))
    try:
        trace = load_trace("philly", data)
    except TraceNotFound as error:
        print(f"skipped: {error}")
        return 0
    rows = {}
    for policy in sorted(Policy, key=lambda policy: policy is Policy.FAIR):  # sort the slowest policy last
        if arguments.policies and policy not in arguments.policies:
            continue
        is_slice = arguments.tiny or (policy is Policy.FAIR and not arguments.whole)
        played = shrink_trace(trace, None, jobs, 0) if is_slice else trace
        summary = _replay(played, policy, arguments.checkpoint)
        name = policy.value + (f", the first {jobs} jobs" if is_slice else "")
        if policy is Policy.FAIR and arguments.checkpoint:
            name += f", saved every {arguments.checkpoint} s"
        rows[name] = summary | {"commit": commit()}
        print(_line(name, summary), flush=True)
    if not arguments.tiny:
        _store(rows)
    return 0


def _replay(trace: Trace, policy: Policy, checkpoint: int | None) -> dict[str, object]:
    records, now, cycles = Records(trace), trace.start_time, 0
    wall, cpu = time.perf_counter(), time.process_time()
    for step in play(trace, policy, records, checkpoint=checkpoint):
        now, cycles = step.now, step.cycles
    return summary_figures(records, now) | {
        "cycles": cycles,
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "wall_seconds": round(time.perf_counter() - wall, 1),
        "reference": REFERENCE.get(policy),
    }


def _store(rows: dict[str, object]) -> None:
    """Merge the rows into the stored results, because a run may cover only some of the policies."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "tenants.json"
    before = json.loads(path.read_text())["policies"] if path.exists() else {}
    answer = {"machine": machine(), "runs": 1, "policies": dict(sorted({**before, **rows}.items()))}
    path.write_text(json.dumps(answer, indent=1) + "\n")


def _line(name: str, row: dict[str, object]) -> str:
    waits, projects = row["queueing"], row["projects"]
    assert isinstance(waits, dict)
    assert isinstance(projects, dict)
    longest = max(project["in_quota"]["longest"] for project in projects.values())
    return (
        f"{name:<12} average {waits['average']:>9,} s  p50 {waits['p50']:>6,}  p99 {waits['p99']:>11,}  "
        f"utilization {row['utilization']:.1%}  longest in quota {longest:>9,.0f} s  "
        f"evictions {row['evictions']}  lost {row['lost_gpu_hours']} GPU-h  {row['cpu_seconds']} s of CPU  "
        f"reference {row['reference']}"
    )


if __name__ == "__main__":
    sys.exit(main())
