"""Claims about the ports that a document may name."""

from typing import Any

import pytest

from berth.core.spec import SpecError, parse_workload
from berth.core.spec.ports import port_variable


def document(*ports: Any, kind: str = "interactive") -> dict[str, Any]:
    return {"name": "desk", "kind": kind, "ports": list(ports), "roles": [{"name": "desk"}]}


def problems_of(given: object) -> dict[str, str]:
    with pytest.raises(SpecError) as refused:
        parse_workload(given)
    return {problem.path: str(problem) for problem in refused.value.problems}


def test_a_port_has_a_name_and_may_have_a_number() -> None:
    spec = parse_workload(document({"name": "lab"}, {"name": "tensor-board", "port": 6006}))
    assert [(port.name, port.port) for port in spec.ports] == [("lab", None), ("tensor-board", 6006)]
    assert parse_workload(spec.document()) == spec
    assert port_variable("tensor-board") == "BERTH_PORT_TENSOR_BOARD"


@pytest.mark.parametrize("name", ["Lab", "1lab", "lab-", "a.b", "", "x" * 16, "läb"])
def test_its_name_has_to_fit_into_the_name_of_a_host(name: str) -> None:
    assert "15 lower-case letters" in problems_of(document({"name": name}))["ports[0].name"]


@pytest.mark.parametrize("number", [0, 22, 1023, 65_536])
def test_its_number_is_one_that_anybody_may_listen_at(number: int) -> None:
    assert "ports[0].port" in problems_of(document({"name": "lab", "port": number}))


def test_names_and_numbers_are_given_once() -> None:
    found = problems_of(document({"name": "a", "port": 5000}, {"name": "a"}, {"name": "b", "port": 5000}))
    assert set(found) == {"ports[0].name", "ports[1].name", "ports[0].port", "ports[2].port"}


def test_other_kinds_of_work_open_no_ports() -> None:
    assert "kind: interactive" in problems_of(document({"name": "lab"}, kind="training"))["ports"]


def test_there_are_not_many_of_them() -> None:
    assert "at most 8" in problems_of(document(*({"name": f"p{n}"} for n in range(9))))["ports"]
