"""Tests for measuring the time of each stage from a submission to its start."""

import pytest

from benchmarks.setup.stages import TOTAL, Steps, Submitted, cpu_milliseconds, milliseconds, moments

WEB = """\
10.010 0.0 notify scheduler
10.012 0.0 notified scheduler
"""
SCHEDULER = """\
9.900 0.100 woken _
9.901 0.100 tick wake
9.910 0.102 reported _
10.013 0.110 woken _
10.018 0.110 tick wake
10.020 0.112 reported _
10.023 0.115 cycle.observed _
10.024 0.116 cycle.decided _
10.034 0.121 commit.done _
10.036 0.123 order another
10.037 0.124 ordered another
10.039 0.126 order pod
10.042 0.127 ordered pod
10.061 0.130 woken _
10.062 0.130 tick pod
10.070 0.136 reports.done _
10.071 0.136 reported _
"""
SUBMITTED = Submitted("w-1", "pod", 10.0, 10.013, 10.004, 10.026, 10.058, 10.065)


@pytest.fixture
def web() -> Steps:
    return Steps(line.replace(" ", "\t") for line in WEB.splitlines())


@pytest.fixture
def scheduler() -> Steps:
    return Steps(line.replace(" ", "\t") for line in SCHEDULER.splitlines())


def test_stage_durations_come_from_the_tick_that_starts_the_workload(web: Steps, scheduler: Steps) -> None:
    stages = milliseconds(SUBMITTED, moments(SUBMITTED, web, scheduler))
    rounded = {stage: round(value) for stage, value in stages.items()}
    assert rounded == {
        "request": 12, "wake-up": 1, "burst window": 5, "pod reports": 2, "observe": 3, "decide": 1,
        "commit": 10, "prepare": 5, "order": 3, "process": 16, "report": 3, "store": 9, "answer": 13,
        "total": 70,
    }  # fmt: skip
    assert sum(stages[stage] for stage in stages if stage not in (TOTAL, "answer")) == pytest.approx(70)


def test_cpu_time_of_a_stage_covers_only_the_scheduler(web: Steps, scheduler: Steps) -> None:
    cpu = cpu_milliseconds(moments(SUBMITTED, web, scheduler), scheduler)
    assert {stage: round(value) for stage, value in cpu.items()} == {
        "burst window": 0, "pod reports": 2, "observe": 3, "decide": 1, "commit": 5, "prepare": 5, "order": 1,
        "store": 6,
    }  # fmt: skip
