"""Keep the slowest decisions of a benchmark, or replay one.

To replay one, run `python -m benchmarks.setup.slow_decisions FILE`. Each file contains the snapshot of a
decision and the one before it, because the scheduler decides from the layout after the previous decision. The
replay prints CPU times, trials and the functions that take longest.
"""

import argparse
import cProfile
import heapq
import pstats
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scheduler.engine.model import Snapshot

COUNT = 5
FUNCTIONS = 30  # number of functions that a replay prints


@dataclass(slots=True)
class SlowDecisions:
    """The decisions with the most CPU time, and the snapshots before them."""

    slowest: list[tuple[float, int, Snapshot | None, Snapshot]] = field(default_factory=list)
    previous: Snapshot | None = None
    number: int = 0

    def keeping(self, decide: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a measurement of each call. Its first argument is the snapshot."""

        def decide_and_keep(snapshot: Snapshot, *arguments: Any) -> Any:
            began = time.thread_time()
            try:
                return decide(snapshot, *arguments)
            finally:
                seconds, self.number = time.thread_time() - began, self.number + 1
                heapq.heappush(self.slowest, (seconds, self.number, self.previous, snapshot))
                if len(self.slowest) > COUNT:
                    heapq.heappop(self.slowest)
                self.previous = snapshot

        return decide_and_keep

    def write(self, folder: Path) -> None:
        """Write one file for each decision, named after its number and CPU time."""
        from scheduler.loop.snapshot_codec import to_json

        folder.mkdir(parents=True, exist_ok=True)
        for seconds, number, previous, snapshot in self.slowest:
            text = to_json({"previous": previous, "snapshot": snapshot})
            name = f"decision-{number}-{seconds * 1000:.0f}ms.json.z"
            (folder / name).write_bytes(zlib.compress(text.encode(), 1))


def main() -> None:
    import json

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("file", type=Path)
    arguments = options.parse_args()
    from scheduler.loop.snapshot_codec import decode_snapshot

    document = json.loads(zlib.decompress(arguments.file.read_bytes()))
    snapshot = decode_snapshot(document["snapshot"])
    previous = decode_snapshot(document["previous"]) if document["previous"] is not None else None
    replay(previous, snapshot)


def replay(previous: Snapshot | None, snapshot: Snapshot) -> None:
    """Repeat a decision with the layout of the previous one, print its cost, and repeat it in a profile."""
    from scheduler.engine.decide import decide_with_layout

    def layout() -> Any:
        return None if previous is None else decide_with_layout(previous, None)[1]

    before = layout()
    began = time.thread_time()
    plan, _ = decide_with_layout(snapshot, before)
    print(
        f"{(time.thread_time() - began) * 1000:.0f} ms, {len(snapshot.workloads)} workloads, "
        f"{len(plan.bundles)} bundles, {len(plan.rejections)} rejections, {plan.trials} trials"
    )
    before, profiler = layout(), cProfile.Profile()
    profiler.runcall(decide_with_layout, snapshot, before)
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(FUNCTIONS)


if __name__ == "__main__":
    main()
