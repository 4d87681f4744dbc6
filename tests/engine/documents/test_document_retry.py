"""Tests for the retry rules of workload documents."""

from pathlib import Path
from typing import Any

import pytest

from berth.core.spec import SpecError, parse_workload
from berth.core.spec.sections.retry_text import InvalidRetryText, format_retry_text, parse_retry_text
from berth.documents import read_document

GROWING = {"on": ["out_of_memory"], "memory_factor": 1.5, "memory_max_mib": "1Gi"}


def document(*rules: dict[str, Any], memory_mib: int = 64, **changes: Any) -> dict[str, Any]:
    return {"name": "w", "retry": list(rules), "roles": [{"name": "r", "memory_mib": memory_mib}], **changes}


def find_problems(*rules: dict[str, Any], **changes: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as rejected:
        parse_workload(document(*rules, **changes))
    return {problem.path: f"{problem.message}. {problem.allowed}" for problem in rejected.value.problems}


def test_signals_are_normalized_and_durations_accept_units() -> None:
    spec = parse_workload(document({"on": [75, "KILL"], "max": 5, "backoff": "30s"}, GROWING))
    assert spec.document()["retry"] == [
        {"on": [75, "SIGKILL"], "max": 5, "backoff": 30},
        {"on": ["out_of_memory"], "memory_factor": 1.5, "memory_max_mib": 1024},
    ]
    assert parse_workload(spec.document()) == spec


def test_signal_and_its_exit_code_count_as_the_same_failure() -> None:
    (rule,) = parse_workload(document({"on": ["TERM"]})).retry
    assert rule.matches("143", of_pod=True)
    assert rule.matches("SIGTERM", of_pod=True)
    assert not rule.matches("out_of_memory", of_pod=True)
    assert find_problems({"on": ["TERM"]}, {"on": [143]}).keys() == {"retry[1].on[0]"}


@pytest.mark.parametrize("policy", ["on_failure", "always"])
def test_restart_policy_is_equivalent_to_a_retry_rule(policy: str) -> None:
    spec = parse_workload(document(restart_policy={"kind": policy, "max_restarts": 3}))
    kinds = ["pod_failed", "completed"] if policy == "always" else ["pod_failed"]
    assert spec.retry_rules == parse_workload(document({"on": kinds, "max": 3})).retry
    problems = find_problems({"on": [1]}, restart_policy={"kind": policy})
    assert problems.keys() == {"restart_policy"}


@pytest.mark.parametrize(
    ("rules", "path", "words"),
    [
        ([{"on": ["out_of_memroy"]}], "retry[0].on[0]", "Did you mean `out_of_memory`?"),
        ([{"on": ["SIGKIL"]}], "retry[0].on[0]", "Did you mean `SIGKILL`?"),
        ([{"on": [0]}], "retry[0].on[0]", "1 to 255"),
        ([{"on": [-1]}], "retry[0].on[0]", "1 to 255"),
        ([{"on": [True]}], "retry[0].on[0]", "an exit code"),
        ([{"on": []}], "retry[0].on", "at least 1"),
        ([{"on": [1], "max": 0}], "retry[0].max", "is too small"),
        ([{"on": [1], "backoff": -1}], "retry[0].backoff", "is too small"),
        ([{"on": [1], "backoff": 0}], "retry[0].backoff", "is too small"),
        ([{"on": [1], "backoff": "2h"}], "retry[0].backoff", "at most 3600"),
        ([{"on": [1], "action": "retry"}], "retry[0].action", "restart"),
        ([{**GROWING, "memory_factor": float("nan")}], "retry[0].memory_factor", "finite"),
        ([{"on": [1], "memory_factor": 0.5, "memory_max_mib": 99}], "retry[0].memory_factor", "above 1"),
        ([{"on": [1], "memory_factor": 2.0}], "retry[0].memory_max_mib", "64Gi"),
        ([{"on": [1], "memory_max_mib": 99}], "retry[0].memory_max_mib", "memory_factor"),
        ([{**GROWING, "memory_max_mib": 32}], "retry[0].memory_max_mib", "at least 64"),
        ([{**GROWING, "on": ["node_lost"]}], "retry[0].memory_factor", "has no effect after node_lost"),
        ([{"on": ["timeout"], "other_node": True}], "retry[0].other_node", "no single node"),
        ([{"on": [1], "action": "fail", "max": 2}], "retry[0].max", "no effect with action fail"),
        ([{"on": ["completed"], "action": "fail"}], "retry[0].action", "restart"),
        ([{"on": ["pod_failed"]}, {"on": [1]}], "retry[1].on[0]", "already covered by retry[0].on[0]"),
        ([{"on": [1]}, {"on": [2, 1]}], "retry[1].on[1]", "already covered by retry[0].on[0]"),
        ([{"on": [1, 1]}], "retry[0].on[1]", "already covered by retry[0].on[0]"),
    ],
)  # fmt: skip
def test_retry_rule_without_effect_is_rejected(rules: list[dict[str, Any]], path: str, words: str) -> None:
    problems = find_problems(*rules)
    assert words in problems[path]


def test_memory_growth_requires_a_memory_request() -> None:
    problems = find_problems(GROWING, memory_mib=0)
    assert "role r, which requests none" in problems["retry[0].memory_factor"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("75", {"on": [75]}),
        ("75,KILL max=5 backoff=30s other_node",
         {"on": [75, "KILL"], "max": 5, "backoff": "30s", "other_node": True}),
        ("out_of_memory memory_factor=1.5 memory_max_mib=64Gi",
         {"on": ["out_of_memory"], "memory_factor": 1.5, "memory_max_mib": "64Gi"}),
        ("1 action=fail", {"on": [1], "action": "fail"}),
    ],
)  # fmt: skip
def test_one_line_retry_rule_equals_the_rule_in_a_document(text: str, rule: dict[str, Any]) -> None:
    assert parse_retry_text(text) == rule
    assert format_retry_text(rule) == text


@pytest.mark.parametrize("text", ["max=3", "75 maximum=3", "75 max", "75 max=1 max=2"])
def test_malformed_one_line_retry_rule_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRetryText):
        parse_retry_text(text)


def test_complex_retry_rule_has_no_one_line_form() -> None:
    assert format_retry_text({"on": [1], "backoff": [3]}) is None
    assert format_retry_text("75") is None


def test_documented_retry_rules_are_valid() -> None:
    text = (Path(__file__).parents[3] / "docs" / "documents.md").read_text()
    example = text.partition("### Retries")[2].split("```")[1].removeprefix("yaml\n")
    read = read_document(example)
    assert isinstance(read, dict)
    assert len(parse_workload(document(*read["retry"])).retry) == 4
