"""Tests for workload documents: accepted keys and error reports."""

from typing import Any

import pytest

from berth.core.spec import RoleShape, SpecError, build_tree, parse_workload
from berth.core.values.amounts import Amounts
from scheduler.engine.from_spec import workload_from_spec
from scheduler.engine.model import Request, Role, RoleGroup


def find_problems(document: object) -> dict[str, str]:
    with pytest.raises(SpecError) as rejected:
        parse_workload(document)
    return {problem.path: str(problem) for problem in rejected.value.problems}


def one_role(**role: Any) -> dict[str, Any]:
    return {"name": "w", "roles": [role]}


def spec_shape(**role: Any) -> RoleShape:
    (shape,) = build_tree(parse_workload(one_role(**role))).children
    assert isinstance(shape, RoleShape)
    return shape


def test_empty_role_has_one_replica_without_requests() -> None:
    shape = spec_shape()
    assert (shape.name, shape.min, shape.max, shape.amounts) == ("worker", 1, 1, Amounts())


@pytest.mark.parametrize(
    ("role", "gpu", "devices"),
    [
        ({"gpu": 3}, 1000, 3),
        ({"gpu": 0.5}, 500, 1),
        ({"gpu": 0.25, "gpu_devices": 2}, 250, 2),
        ({"gpu": 1.0}, 1000, 1),
        ({"gpu_memory_mib": 2000}, 0, 1),
        ({"cpu": 1}, 0, 0),
    ],
)
def test_gpus_are_whole_devices_or_fractions(role: dict[str, Any], gpu: int, devices: int) -> None:
    shape = spec_shape(**role)
    assert (shape.gpu, shape.devices) == (gpu, devices)


@pytest.mark.shows("PAD-06")
def test_quantities_accept_suffixes() -> None:
    shape = spec_shape(cpu="800m", memory_mib="1Gi", limit={"cpu": 2, "memory_mib": "2000Mi"})
    assert (shape.cpu, shape.memory_mib, shape.limit_cpu, shape.limit_memory_mib) == (800, 1024, 2000, 2000)


@pytest.mark.shows("PAD-23")
def test_limits_default_to_requests() -> None:
    shape = spec_shape(cpu=2, memory_mib=512)
    assert (shape.limit_cpu, shape.limit_memory_mib) == (2000, 512)


@pytest.mark.parametrize(
    ("role", "path"),
    [
        ({"gpu": 1.5}, "roles[0].gpu"),
        ({"gpu": -1}, "roles[0].gpu"),
        ({"gpu": True}, "roles[0].gpu"),
        ({"gpu": float("nan")}, "roles[0].gpu"),
        ({"gpu": 10**400}, "roles[0].gpu"),
        ({"gpu": 0.0001}, "roles[0].gpu"),
        ({"gpu": 2, "gpu_devices": 2}, "roles[0].gpu_devices"),
        ({"gpu_devices": 2}, "roles[0].gpu_devices"),
        ({"gpu": 1, "gpu_memory_mib": 10}, "roles[0].gpu_memory_mib"),
        ({"gpu_memory_mib": 0}, "roles[0].gpu_memory_mib"),
        ({"cpu": float("inf")}, "roles[0].cpu"),
        ({"cpu": "1k"}, "roles[0].cpu"),
        ({"memory_mib": "5Xi"}, "roles[0].memory_mib"),
        ({"memory_mib": "5"}, "roles[0].memory_mib"),
        ({"min": 3, "max": 2}, "roles[0].min"),
        ({"min": 1, "replicas": 2}, "roles[0].replicas"),
        ({"max": 2}, "roles[0].min"),
        ({"min": True}, "roles[0].min"),
        ({"min": -1}, "roles[0].min"),
        ({"replicas": 100_001}, "roles[0].replicas"),
        ({"min": 0, "max": 4}, "roles"),
        ({"limit": {"cpu": 1}, "cpu": 2}, "roles[0].limit.cpu"),
        ({"limit": {"gpu": 1}}, "roles[0].limit.gpu"),
        ({"topology": {"needed": "rack"}}, "roles[0].topology.needed"),
        ({"tolerations": [{"operator": "Equal"}]}, "roles[0].tolerations[0].key"),
        ({"scale_with": {"role": "nobody"}}, "roles[0].scale_with.role"),
        ({"scale_with": {"role": "worker"}}, "roles[0].scale_with.role"),
        ({"name": "W"}, "roles[0].name"),
        ({"command": ["ok", "a\x00b"]}, "roles[0].command[1]"),
        ({"env": {"1X": "y"}}, "roles[0].env.1X"),
        ({"env": {"X": 1}}, "roles[0].env.X"),
        ({"env": {"X": "y" * 40_000, "Y": "y" * 40_000}}, "roles[0].env"),
    ],
)
def test_error_names_the_path_of_the_invalid_key(role: dict[str, Any], path: str) -> None:
    assert list(find_problems(one_role(**role))) == [path]


def test_all_errors_in_a_workload_document_are_reported_together() -> None:
    document = {
        "name": "Not A Name",
        "prio": 3,
        "labels": {"a": "x" * 300},
        "roles": [{"gpu": 1.5}, {"name": "b", "min": 3, "max": 2}],
    }
    paths = ["labels.a", "name", "prio", "roles[0].gpu", "roles[1].min"]
    assert list(find_problems(document)) == paths


def test_unknown_key_error_suggests_the_nearest_key() -> None:
    assert "Did you mean `priority`?" in find_problems(one_role() | {"prioritty": 3})["prioritty"]


@pytest.mark.parametrize("document", [None, 3, "text", [], {"roles": [{}]}, {"name": "w"}])
def test_value_that_is_not_a_workload_document_is_rejected(document: object) -> None:
    assert find_problems(document)


def test_too_deeply_nested_document_is_rejected_before_parsing() -> None:
    document: dict[str, Any] = {"name": "w"}
    inner = document
    for _ in range(100_000):
        inner["groups"] = [{}]
        inner = inner["groups"][0]
    assert "is nested too deeply" in find_problems(document)[""]


def test_role_names_are_unique_in_the_whole_tree() -> None:
    groups = [{"name": "a", "roles": [{"name": "x"}]}, {"name": "b", "roles": [{"name": "x"}]}]
    assert set(find_problems({"name": "w", "groups": groups})) == {"groups[1].roles[0].name"}


def test_circular_references_in_scale_with_are_rejected() -> None:
    roles = [{"name": "a", "scale_with": {"role": "b"}}, {"name": "b", "scale_with": {"role": "a"}}]
    assert len(find_problems({"name": "w", "roles": roles})) == 2


def test_role_group_minimum_cannot_exceed_its_number_of_children() -> None:
    document = {"name": "w", "groups": [{"name": "a", "need": 2, "roles": [{}]}]}
    assert list(find_problems(document)) == ["groups[0].need"]


def test_gang_without_a_required_replica_is_rejected() -> None:
    roles = [{"name": "a", "min": 0, "max": 2}, {"name": "b"}]
    assert parse_workload({"name": "w", "roles": roles})
    assert "no replicas" in find_problems({"name": "w", "need": 1, "roles": roles})["roles"]


@pytest.mark.parametrize(("value", "priority"), [("high", 125), (0, 0), (1000, 1000)])
def test_priorities_are_numbers_or_names(value: object, priority: int) -> None:
    spec = parse_workload(one_role() | {"priority": value})
    assert (spec.effective_priority, spec.is_preemptible) == (priority, priority < 100)


@pytest.mark.parametrize(("kind", "priority"), [("training", 50), ("interactive", 50), ("service", 80)])
@pytest.mark.parametrize("value", [{}, {"priority": None}])
def test_omitted_priority_defaults_to_the_workload_kinds_priority(
    value: dict[str, None], kind: str, priority: int
) -> None:
    spec = parse_workload(one_role() | {"kind": kind} | value)
    assert (spec.effective_priority, spec.is_preemptible) == (priority, True)
    assert "priority" not in spec.document()


@pytest.mark.parametrize("value", ["highest", 1001, -1, True, 50.0])
def test_invalid_priority_is_rejected(value: object) -> None:
    assert list(find_problems(one_role() | {"priority": value})) == ["priority"]


def test_stored_document_parses_to_the_same_spec() -> None:
    spec = parse_workload(
        {
            "name": "w",
            "submitted": "2026-01-01T10:00:00+01:00",
            "priority": "low",
            "command": "python train.py\necho done",
            "roles": [{"gpu": 0.5, "cpu": "250m", "memory_mib": "1Gi", "command": ["a"], "env": {"X": "1"}}],
        }
    )
    assert parse_workload(spec.document()) == spec
    assert spec.document()["submitted"] == "2026-01-01T09:00:00Z"


def test_command_string_runs_in_a_shell_and_roles_may_override_it() -> None:
    roles = [{"name": "a"}, {"name": "b", "command": ["x", "y"], "env": {"K": "b"}}]
    spec = parse_workload({"name": "w", "command": "echo", "env": {"K": "w", "L": "w"}, "roles": roles})
    a, b = spec.all_roles
    assert spec.role_argv(a) == ("/bin/sh", "-c", "echo")
    assert spec.role_argv(b) == ("x", "y")
    assert spec.role_env(b) == {"K": "b", "L": "w"}


def test_scheduler_input_has_the_role_tree_of_the_document() -> None:
    roles = [{"min": 1, "max": 3, "gpu": 2}]
    group = {"name": "g", "topology": {"required": "rack"}, "roles": roles}
    document = {"name": "w", "project": "vision", "need": 1, "groups": [group]}
    workload = workload_from_spec(parse_workload({**document, "submitted": "1970-01-01T00:00:07Z"}))
    (inner,) = workload.tree.children
    assert isinstance(inner, RoleGroup)
    (role,) = inner.children
    assert role == Role("worker", 1, 3, Request(gpu=1000, devices=2))
    assert (workload.tree.need, workload.submitted, workload.project) == (1, 7, "vision")


@pytest.mark.parametrize("command", ["", []])
def test_error_for_an_empty_command_states_that_it_is_empty(command: object) -> None:
    assert "is empty" in find_problems(one_role() | {"command": command})["command"]


def test_contradictions_between_valid_fields_are_reported_with_other_problems() -> None:
    problems = find_problems(
        {"name": "My Run", "command": "", "roles": [{"min": 4, "max": 2, "gpu": 1.5, "command": "x"}]}
    )
    assert sorted(problems) == ["command", "name", "roles[0].gpu", "roles[0].min"]
    document = {"name": "My Run", "command": "x", "burst_after": 30, "pools": ["a"], "roles": [{}]}
    assert sorted(find_problems(document)) == ["burst_after", "name"]
