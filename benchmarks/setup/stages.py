"""Divide the time from a submission to the recorded start of its pod into stages."""

import bisect
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

STAGES = {  # the event that ends each stage
    "request": "notified",
    "wake-up": "woken",
    "burst window": "tick",
    "pod reports": "reported",
    "observe": "observed",
    "decide": "decided",
    "commit": "committed",
    "prepare": "ordered",
    "order": "spawned",
    "process": "running",
    "report": "report woken",
    "store": "stored",
}
SCHEDULER_STAGES = {
    "burst window", "pod reports", "observe", "decide", "commit", "prepare", "order", "store"
}  # fmt: skip
PERCENTS = (0, 50, 90, 99, 100)
TOTAL, ANSWER = "total", "answer"


@dataclass(frozen=True)
class Submitted:
    """Unix times of one submission, in seconds, from the client and the database."""

    name: str
    pod: str
    sent: float
    answered: float
    stored: float  # time at which a transaction stored the workload
    placed: float  # time at which a transaction placed the workload
    started: float  # time at which the pod's process started
    recorded: float  # time at which a transaction stored the start


class Steps:
    """Steps recorded by one process, in chronological order."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.times: list[float] = []
        self.cpu: list[float] = []
        self.names: list[str] = []
        self.details: list[str] = []
        for line in lines:
            at, cpu, name, details = line.rstrip("\n").split("\t")
            self.times.append(float(at))
            self.cpu.append(float(cpu))
            self.names.append(name)
            self.details.append(details)

    @classmethod
    def read(cls, file: Path) -> "Steps":
        return cls(file.read_text().splitlines())

    def first(self, name: str, at: float, details: str = "") -> float:
        """Return the time of the first step with this name at or after `at`.

        Raises StopIteration if there is none.
        """
        start = bisect.bisect_left(self.times, at)
        return next(
            self.times[i]
            for i in range(start, len(self.times))
            if self.names[i] == name and details in ("", self.details[i])
        )

    def last(self, name: str, before: float) -> float:
        """Return the time of the last step with this name before `before`.

        Raises StopIteration if there is none.
        """
        end = bisect.bisect_left(self.times, before)
        return next(self.times[i] for i in range(end - 1, -1, -1) if self.names[i] == name)

    def cpu_ms(self, begin: float, end: float) -> float:
        """Return the CPU milliseconds that the process used between two steps, identified by their times."""
        first, last = bisect.bisect_left(self.times, begin), bisect.bisect_left(self.times, end)
        return (self.cpu[last] - self.cpu[first]) * 1000

    def between(self, begin: float, end: float, names: Sequence[str]) -> list[tuple[float, str, str]]:
        first, last = bisect.bisect_left(self.times, begin), bisect.bisect_right(self.times, end)
        return [
            (self.times[i], self.names[i], self.details[i])
            for i in range(first, last)
            if self.names[i] in names
        ]


def moments(submitted: Submitted, web: Steps, scheduler: Steps) -> dict[str, float]:
    """Return the Unix time of each event that ends a stage."""
    committed = scheduler.first("commit.done", submitted.placed)
    tick = scheduler.last("tick", committed)
    stored = scheduler.first("reports.done", submitted.recorded)
    report_tick = scheduler.last("tick", stored)
    return {
        "sent": submitted.sent,
        "notified": web.first("notified", submitted.stored),
        "woken": scheduler.last("woken", tick),
        "tick": tick,
        "reported": scheduler.first("reported", tick),
        "observed": scheduler.first("cycle.observed", tick),
        "decided": scheduler.first("cycle.decided", tick),
        "committed": committed,
        "ordered": scheduler.first("order", committed, submitted.pod),
        "spawned": scheduler.first("ordered", committed, submitted.pod),
        "running": submitted.started,
        "report woken": scheduler.last("woken", report_tick),
        "stored": stored,
    }


def milliseconds(submitted: Submitted, at: dict[str, float]) -> dict[str, float]:
    """Return the milliseconds of each stage and in total. Stages of one submission may overlap a little."""
    result, before = {}, at["sent"]
    for stage, end in STAGES.items():
        result[stage] = max(0.0, at[end] - before) * 1000
        before = max(before, at[end])
    return {
        **result,
        ANSWER: (submitted.answered - submitted.sent) * 1000,
        TOTAL: (at["stored"] - at["sent"]) * 1000,
    }


def cpu_milliseconds(at: dict[str, float], scheduler: Steps) -> dict[str, float]:
    """Return the CPU milliseconds of each of the scheduler's stages."""
    ends = list(STAGES.items())
    return {
        stage: scheduler.cpu_ms(at[before], at[end])
        for (_, before), (stage, end) in pairwise(ends)
        if stage in SCHEDULER_STAGES
    }


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def table(rows: Sequence[dict[str, float]], cpu: Sequence[dict[str, float]]) -> str:
    """Format the percentiles of each stage and the scheduler's median CPU time as a text table."""
    lines = [f"{'milliseconds':<14} {'min':>7} {'p50':>7} {'p90':>7} {'p99':>7} {'max':>7} {'CPU':>7}"]
    for stage in rows[0]:
        values = [row[stage] for row in rows]
        figures = [percentile(values, percent) for percent in PERCENTS]
        used = f" {statistics.median(row[stage] for row in cpu):>7.1f}" if stage in cpu[0] else ""
        lines.append(f"{stage:<14}" + "".join(f" {figure:>7.1f}" for figure in figures) + used)
    return "\n".join(lines)
