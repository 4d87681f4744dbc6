"""Record the slowest decisions of a benchmark, or replay one.

`python -m benchmarks.setup.slow_decisions FILE` replays a decision, and prints its CPU time, its trials and
the slowest functions. Each file contains the snapshots of a decision and of the one before it, because a
decision reuses the layout of the previous one.
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
    """Decisions that took the most CPU time, each with the snapshot of the previous decision."""

    slowest: list[tuple[float, int, Snapshot | None, Snapshot]] = field(default_factory=list)
    previous: Snapshot | None = None
    number: int = 0

    def keeping(self, decide: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `decide` to measure each call. Its first argument must be the snapshot."""

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
        """Write each decision to a file that is named after its number and CPU time."""
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
    """Repeat a decision with the layout of the previous one, and print its CPU time and a profile."""
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
