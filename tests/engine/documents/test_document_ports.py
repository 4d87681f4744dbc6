"""Tests for the ports that a workload document declares."""

from typing import Any

import pytest

from berth.core.spec import SpecError, parse_workload
from berth.core.spec.sections.ports import port_variable


def document(*ports: Any, kind: str = "interactive") -> dict[str, Any]:
    return {"name": "desk", "kind": kind, "ports": list(ports), "roles": [{"name": "desk"}]}


def find_problems(ports: object) -> dict[str, str]:
    with pytest.raises(SpecError) as rejected:
        parse_workload(ports)
    return {problem.path: str(problem) for problem in rejected.value.problems}


def test_port_requires_a_name_and_has_an_optional_number() -> None:
    spec = parse_workload(document({"name": "lab"}, {"name": "tensor-board", "port": 6006}))
    assert [(port.name, port.port) for port in spec.ports] == [("lab", None), ("tensor-board", 6006)]
    assert parse_workload(spec.document()) == spec
    assert port_variable("tensor-board") == "BERTH_PORT_TENSOR_BOARD"


@pytest.mark.parametrize("name", ["Lab", "1lab", "lab-", "a.b", "", "x" * 16, "läb"])
def test_port_name_must_be_valid_in_a_hostname(name: str) -> None:
    assert "15 lowercase letters" in find_problems(document({"name": name}))["ports[0].name"]


@pytest.mark.parametrize("number", [0, 22, 1023, 65_536])
def test_port_number_must_be_unprivileged(number: int) -> None:
    assert "ports[0].port" in find_problems(document({"name": "lab", "port": number}))


def test_port_names_and_numbers_must_be_unique() -> None:
    problems = find_problems(
        document({"name": "a", "port": 5000}, {"name": "a"}, {"name": "b", "port": 5000})
    )
    assert set(problems) == {"ports[0].name", "ports[1].name", "ports[0].port", "ports[2].port"}


def test_only_sessions_may_declare_ports() -> None:
    assert "kind: interactive" in find_problems(document({"name": "lab"}, kind="training"))["ports"]


def test_number_of_ports_is_limited() -> None:
    assert "at most 8" in find_problems(document(*({"name": f"p{n}"} for n in range(9))))["ports"]
