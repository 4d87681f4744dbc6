"""Replay a trace with the selected policy."""

from collections.abc import Iterator

from berth.core.backports import StrEnum
from scheduler.simulator.replay.baselines import FifoPolicy
from scheduler.simulator.replay.player import Progress, ReplayRun
from scheduler.simulator.replay.records import Records
from scheduler.simulator.replay.trace import Trace, split_by_project


class Policy(StrEnum):
    FAIR = "fair"  # Berth's engine
    FIFO = "fifo"
    SKIP = "skip"
    STATIC_FIFO = "static-fifo"
    STATIC_SKIP = "static-skip"


def play(
    trace: Trace, policy: Policy, records: Records, min_cycle_seconds: int = 0, checkpoint: int | None = None
) -> Iterator[Progress]:
    """Replay an entire trace.

    Engine cycles are at least `min_cycle_seconds` apart. Running workloads save a checkpoint every
    `checkpoint` seconds, or never if `checkpoint` is None. With a static policy, each project has its own
    nodes.
    """
    if policy is Policy.FAIR:
        yield from ReplayRun(
            trace, records, min_cycle_seconds=min_cycle_seconds, checkpoint=checkpoint
        ).play()
        return
    skip = policy in (Policy.SKIP, Policy.STATIC_SKIP)
    parts = split_by_project(trace) if policy in (Policy.STATIC_FIFO, Policy.STATIC_SKIP) else (trace,)
    before = Progress(trace.cluster.now, 0, 0, 0)
    for part in parts:
        last = before
        for step in FifoPolicy(part, records, skip).play():
            last = Progress(step.now, before.arrived + step.arrived, before.ended + step.ended,
                            before.cycles + step.cycles)  # fmt: skip
            yield last
        before = last
