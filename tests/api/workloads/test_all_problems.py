"""Tests for errors that contain all problems of a submitted document."""

from typing import Any

import pytest

from tests.api.conftest import Caller
from tests.cast import training


def paths(error: Any) -> list[str]:
    return sorted(problem["path"] for problem in error["errors"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"command": None, "max_runtime": "long"}, ["command", "max_runtime"]),
        ({"pools": ["nowhere"], "secrets": [{"name": "absent"}], "command": None},
         ["command", "pools[0]", "secrets[0]"]),
        ({"roles": [{"gpu": "many"}], "pools": ["nowhere"], "name": "A B"},
         ["name", "pools[0]", "roles[0].gpu"]),
        ({"project": "nowhere", "deadline": "2001-01-01T00:00:00Z", "priorty": 5},
         ["deadline", "priorty", "project"]),
    ],
)  # fmt: skip
def test_error_contains_the_problems_of_all_validation_stages(
    dave: Caller, changes: dict[str, Any], expected: list[str]
) -> None:
    sent = {**training(project="vision"), **changes}
    document = {key: value for key, value in sent.items() if value is not None}
    assert paths(dave.post("workloads", document).json()) == expected
    (item,) = dave.post("workloads:batch", {"items": [document]}).json()["items"]
    assert paths(item["error"]) == [f"items[0].{path}" for path in expected]


def test_document_with_very_many_errors_is_not_checked_further(dave: Caller) -> None:
    unknown = {f"key-{number}": 1 for number in range(101)}
    document = {**training(project="vision"), "pools": ["nowhere"], **unknown}
    assert paths(dave.post("workloads", document).json()) == sorted(unknown)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"comand": "true"}, ["comand"]),
        ({"image": 5}, ["image"]),
        ({"kind": "trainng"}, ["kind"]),
        ({"command": "true", "proejct": "vision", "project": None}, ["proejct"]),
        ({"command": "true", "secrets": [{"name": "A B"}, {"name": "absent"}]}, ["secrets[0].name"]),
    ],
)
def test_invalid_value_causes_no_further_problems(
    alice: Caller, changes: dict[str, Any], expected: list[str]
) -> None:
    sent = {**training(project="vision"), "command": None, **changes}
    document = {key: value for key, value in sent.items() if value is not None}
    assert paths(alice.post("workloads", document).json()) == expected
