"""Scheduler process of a benchmark: `python -m benchmarks.setup.processes.loop_process REPORT`.

It runs `run_scheduler` with measurements. On SIGUSR1, it writes a JSON report on the rounds since the last
report: the longest wall and CPU time, the steps of the slowest rounds, the CPU time by step, and the number
of SQL statements. On SIGUSR2, it ends all running pods within a second. When it exits, it writes a profile to
the file BERTH_BENCH_PROFILE, and the slowest decisions to the directory BERTH_BENCH_DECISIONS, if these
variables are set.
"""

import cProfile
import heapq
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

SLOWEST = 5  # number of rounds whose steps are reported


class Rounds:
    """Measurements of scheduler rounds. Times are in seconds."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(list)
        self.forget()

    def forget(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.slowest: list[tuple[float, int, dict[str, float]]] = []  # (CPU time, round, CPU time by step)
        self.statements = 0
        for seconds in self.spent.values():
            seconds.clear()

    def count(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self.statements += 1
        return execute(*arguments)

    def measured(self, work: Callable[..., float]) -> Callable[..., float]:
        def measured_work(*arguments: Any) -> float:
            wall, cpu = time.perf_counter(), time.thread_time()
            before = {step: len(seconds) for step, seconds in self.spent.items()}
            try:
                return work(*arguments)
            finally:
                self.wall.append(time.perf_counter() - wall)
                self.cpu.append(time.thread_time() - cpu)
                steps = {step: sum(seconds[before.get(step, 0) :]) for step, seconds in self.spent.items()}
                heapq.heappush(self.slowest, (self.cpu[-1], len(self.cpu), steps))
                if len(self.slowest) > SLOWEST:
                    heapq.heappop(self.slowest)

        return measured_work

    def write(self, file: Path) -> None:
        """Replace the file with a report, and restart the measurement."""
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps(self.report()))
        unfinished.rename(file)
        self.forget()

    def report(self) -> dict[str, Any]:
        return {
            "rounds": len(self.wall),
            "longest_round_ms": round(max(self.wall, default=0.0) * 1000),
            "longest_round_cpu_ms": round(max(self.cpu, default=0.0) * 1000),
            "slowest_rounds_cpu_ms": [
                {"all": round(cpu * 1000), **_milliseconds(steps)}
                for cpu, _, steps in sorted(self.slowest, key=lambda entry: -entry[0])
            ],
            "rounds_cpu_s": round(sum(self.cpu), 3),
            "statements": self.statements,
            "steps_cpu_s": {
                step: round(sum(seconds), 3)
                for step, seconds in sorted(self.spent.items(), key=lambda item: -sum(item[1]))
            },
        }


def _milliseconds(steps: dict[str, float]) -> dict[str, int]:
    """Convert the steps' times to milliseconds, omitting steps of less than a millisecond."""
    return {step: round(seconds * 1000) for step, seconds in steps.items() if seconds >= 0.001}


def main() -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from benchmarks.setup.slow_decisions import SlowDecisions
    from benchmarks.setup.timed_pods import TimedRuntime
    from benchmarks.ticks import timed_steps
    from berth.server.wiring import load_wiring
    from scheduler.loop import tick
    from scheduler.loop.leader import Scheduler

    rounds, profile = Rounds(), os.environ.get("BERTH_BENCH_PROFILE")
    slow_decisions, decisions = SlowDecisions(), os.environ.get("BERTH_BENCH_DECISIONS")
    pods = load_wiring().runtimes["fake"]
    assert isinstance(pods, TimedRuntime)
    signal.signal(signal.SIGUSR1, lambda *_: rounds.write(Path(sys.argv[1])))
    signal.signal(signal.SIGUSR2, lambda *_: pods.end_all(1.0))
    setattr(Scheduler, "run_round", rounds.measured(Scheduler.run_round))  # noqa: B010 - a method of a class
    profiler = cProfile.Profile()
    with timed_steps(rounds.spent), connection.execute_wrapper(rounds.count):
        if decisions:
            setattr(tick, "decide_pools", slow_decisions.keeping(tick.decide_pools))  # noqa: B010
        if profile:
            profiler.enable()
        call_command("run_scheduler")
        profiler.disable()
    if profile:
        profiler.dump_stats(profile)
    if decisions:
        slow_decisions.write(Path(decisions))


if __name__ == "__main__":
    main()
