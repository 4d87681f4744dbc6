"""Tests for the messages about values of the wrong type in workload documents."""

from typing import Any

import pydantic
import pytest

from berth.core.spec import SpecError, parse_workload
from berth.core.spec.parsing import type_mismatches


def error_of(changes: dict[str, Any]) -> str:
    document = {"name": "train", "command": "run", "roles": [{"gpu": 1}], **changes}
    with pytest.raises(SpecError) as rejected:
        parse_workload(document)
    return "\n".join(str(problem) for problem in rejected.value.problems)


@pytest.mark.parametrize(
    ("changes", "message", "nearest"),
    [
        ({"roles": {"name": "w", "gpu": 1}}, "roles: must be a list, not a mapping", "[{name: w, gpu: 1}]"),
        ({"roles": ["w"]}, "roles[0]: must be a mapping, not text", "{name: w}"),
        ({"pools": "train"}, "pools: must be a list, not text", "[train]"),
        ({"pools": [7]}, "pools[0]: must be text, not a number", '"7"'),
        ({"env": ["EPOCHS=3"]}, "env: must be a mapping, not a list", '{EPOCHS: "3"}'),
        ({"env": {"EPOCHS": 3}}, "env.EPOCHS: must be text, not a number", '"3"'),
        ({"roles": [{"replicas": "4"}]}, "roles[0].replicas: must be a whole number, not text", "4"),
        ({"preemptible": "yes"}, "preemptible: must be true or false, not text", "true"),
        ({"kind": "trainng"}, "kind: is not an allowed value", "training"),
    ],
)
def test_error_for_a_wrong_type_suggests_the_nearest_valid_value(
    changes: dict[str, Any], message: str, nearest: str
) -> None:
    error = error_of(changes)
    assert error.startswith(f"{message}; received ") and error.endswith(f". Did you mean `{nearest}`?")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"roles": "w"}, "roles: must be a list, not text; received 'w'; allowed: one item per line"),
        (
            {"array": {"values": {"lr": [1]}}},
            "array.values: must be a list, not a mapping; received {'lr': [1]}; allowed: one item per line",
        ),
        ({"env": []}, "env: must be a mapping, not a list; received []; allowed: `key: value`, one per line"),
        ({"preemption": 3}, "preemption: must be a mapping, not a number; received 3; allowed: a mapping of"),
        ({"ports": 8888}, "ports: must be a list, not a number; received 8888; allowed: one item per line"),
        (
            {"max_runtime": "soon"},
            "max_runtime: is not a valid duration; received 'soon'; allowed: a number",
        ),
        ({"roles": [{"gpu": 2000}]}, "roles[0].gpu: is too large; received 2000; allowed: at most 1024"),
        ({"roles": None}, "roles: is missing; allowed: roles or groups"),
    ],
)
def test_error_states_the_expected_form_if_no_similar_value_is_valid(
    changes: dict[str, Any], message: str
) -> None:
    assert error_of(changes).startswith(message)


def test_values_are_suggested_only_for_the_first_of_many_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    created: list[str] = []

    def create_model(name: str, **fields: Any) -> Any:
        created.append(name)
        return pydantic.create_model(name, **fields)

    monkeypatch.setattr(type_mismatches, "create_model", create_model)
    lines = error_of({"roles": [{"replicas": "4"}] * 3000}).splitlines()
    plain = "must be a whole number, not text; received '4'"
    assert len(lines) == 3000 and len(created) <= 1
    assert {f"roles[{row}].replicas: {plain}. Did you mean `4`?" for row in range(20)} <= set(lines)
    assert {f"roles[{row}].replicas: {plain}" for row in range(20, 3000)} <= set(lines)
