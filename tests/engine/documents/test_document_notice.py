"""Tests for the preemption signal in workload documents."""

from typing import Any

import pytest

from berth.core.spec import SpecError, parse_workload


def document(**preemption: Any) -> dict[str, Any]:
    return {"name": "w", "roles": [{}], "grace_period_seconds": 60, "preemption": preemption}


def test_lead_time_precedes_the_grace_period() -> None:
    spec = parse_workload(document(signal="USR1", lead="5m"))
    assert spec.document()["preemption"] == {"signal": "SIGUSR1", "lead": 300}
    assert (spec.stop_seconds, spec.grace_period_seconds) == (360, 60)
    assert parse_workload(spec.document()) == spec


@pytest.mark.parametrize(
    ("preemption", "path", "words"),
    [
        ({"signal": "KILL", "lead": 9}, "preemption.signal", "cannot be handled"),
        ({"signal": "TERM", "lead": 9}, "preemption.signal", "always sent"),
        ({"signal": "SIGUSR3", "lead": 9}, "preemption.signal", "Did you mean `SIGUSR2`?"),
        ({"signal": 10, "lead": 9}, "preemption.signal", "a signal that a program can handle"),
        ({"signal": "USR1", "lead": 0}, "preemption.lead", "at least 1"),
        ({"signal": "USR1", "lead": -5}, "preemption.lead", "at least 1"),
        ({"signal": "USR1", "lead": float("nan")}, "preemption.lead", "a whole number"),
        ({"signal": "USR1", "lead": 86_399}, "preemption.lead", "86400 s in total"),
        ({"signal": "USR1"}, "preemption.lead", "is missing"),
        ({"signal": "USR1", "lead": 9, "led": 1}, "preemption.led", "Did you mean `lead`?"),
    ],
)
def test_invalid_preemption_notice_is_rejected_with_the_reason(
    preemption: dict[str, Any], path: str, words: str
) -> None:
    with pytest.raises(SpecError) as rejected:
        parse_workload(document(**preemption))
    problems = {problem.path: f"{problem.message}. {problem.allowed}" for problem in rejected.value.problems}
    assert words in problems[path]
