"""Tests for scenario files: accepted keys, and errors for invalid keys."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.core.values.amounts import Bounds
from scheduler.engine.model import NodeState, PodState, PoolQuota, Strategy
from scheduler.simulator import ScenarioError, load, run

FORMAT = {"format": "berth.scenario/1"}
CLUSTER: dict[str, Any] = {
    **FORMAT,
    "nodes": [{"name": "n", "gpus": 2, "cpu": 4, "memory_mib": 1000, "gpu_memory_mib": 1000}],
    "departments": [{"name": "d"}],
    "projects": [{"name": "p", "department": "d"}],
}


def scenario_with_workload(*workloads: dict[str, Any]) -> dict[str, Any]:
    return {**CLUSTER, "workloads": [{"project": "p", "roles": [{"gpu": 1}], **w} for w in workloads]}


def work(keys: dict[str, Any]) -> dict[str, Any]:
    return scenario_with_workload({"name": "w", **keys})


def parse_pool_quotas(quotas: dict[str, Any]) -> dict[str, Any]:
    return {**FORMAT, "departments": [{"name": "d", "quotas": quotas}]}


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))


def rejection_message(data: object) -> str:
    with pytest.raises(ScenarioError) as rejected:
        load(data)
    line = str(rejected.value)
    assert "\n" not in line
    return line


def test_empty_scenario_has_one_pool_and_a_fixed_date() -> None:
    loaded = load(FORMAT)
    assert [pool.name for pool in loaded.snapshot.pools] == ["default"]
    assert (loaded.snapshot.now, loaded.cycle_seconds) == (1_767_225_600, 1)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (3, "document"),
        ({}, "format"),
        ({"format": "berth.scenario/2"}, "format"),
        ({**FORMAT, "nods": []}, "nods"),
        ({**FORMAT, "nodes": [{"name": "n", "gpu": 2}]}, "nodes[0].gpu"),
        ({**FORMAT, "nodes": [{"name": "n", "gpus": -1}]}, "nodes[0].gpus"),
        ({**FORMAT, "nodes": [{"name": "n", "gpus": True}]}, "nodes[0].gpus"),
        ({**FORMAT, "nodes": [{"name": "n", "gpus": "2"}]}, "nodes[0].gpus"),
        ({**FORMAT, "nodes": [{"name": "n", "cpu": -0.5}]}, "nodes[0].cpu"),
        ({**FORMAT, "nodes": [{"name": "n", "pool": "no"}]}, "nodes[0].pool"),
        ({**FORMAT, "nodes": [{"name": "n"}, {"name": "n"}]}, "nodes[1].name"),
        ({**FORMAT, "pools": [{"name": "p", "nodes": {"min": 2, "max": 1}}]}, "pools[0].nodes.min"),
        ({**FORMAT, "pools": [{"name": "p", "topology": ["a", "a"]}]}, "pools[0].topology[1]"),
        (work({"pools": ["default", "default"]}), "workloads[0].pools[1]"),
        ({**FORMAT, "nodes": [{"name": "n", "state": "broken"}]}, "nodes[0].state"),
        ({**FORMAT, "cycle_seconds": 0}, "cycle_seconds"),
        ({**FORMAT, "now": "yesterday"}, "now"),
        ({**FORMAT, "pools": []}, "pools"),
        ({**FORMAT, "pools": [{"name": "p", "placement": "tight"}]}, "pools[0].placement.nodes"),
        ({**FORMAT, "pools": [{"name": "p", "consolidation": {"moves": 1}}]}, "pools[0].consolidation.moves"),
        ({**FORMAT, "pools": [{"name": "p", "fairshare": {"k": float("nan")}}]}, "pools[0].fairshare.k"),
        (parse_pool_quotas({"no": {}}), "departments[0].quotas.no"),
        (parse_pool_quotas({"default": {"gpu": -1}}), "departments[0].quotas.default.gpu"),
        (parse_pool_quotas({"default": {"weight": "x"}}), "departments[0].quotas.default.weight"),
        ({**FORMAT, "projects": [{"name": "p", "department": "no"}]}, "projects[0].department"),
        (work({"project": "no"}), "workloads[0].project"),
        (work({"pools": ["no"]}), "workloads[0].pools[0]"),
        (work({"after": [{"workload": "no"}]}), "workloads[0].after[0].workload"),
        (work({"roles": [{"topology": {"required": "rak"}}]}), "workloads[0].roles[0].topology.required"),
        (work({"roles": [{"gpu": 1.5}]}), "workloads[0].roles[0].gpu"),
        (work({"roles": [{"min": 2, "max": 1}]}), "workloads[0].roles[0].min"),
        (work({"pods": [{"node": "no"}]}), "workloads[0].pods[0].node"),
        (work({"pods": [{}]}), "workloads[0].pods[0].node"),
        (work({"pods": [{"node": "n", "role": "no"}]}), "workloads[0].pods[0].role"),
        (work({"pods": [{"node": "n", "devices": [2]}]}), "workloads[0].pods[0].devices"),
        (work({"pods": [{"node": "n", "devices": [0, 1]}]}), "workloads[0].pods[0].devices"),
        (work({"pods": [{"node": "n", "state": "asleep"}]}), "workloads[0].pods[0].state"),
        (work({"pods": [{"node": "n", "index": 1}] * 2}), "workloads[0].pods[1].index"),
        (work({"pods": [{"node": "n"}] * 3}), "workloads[0].pods[2].node"),
        (work({"roles": [{"cpu": 5}], "pods": [{"node": "n"}]}), "workloads[0].pods[0]"),
        (work({"roles": [{"memory_mib": 2000}], "pods": [{"node": "n"}]}), "workloads[0].pods[0]"),
        (
            scenario_with_workload(
                {"name": "w", "pods": [{"node": "n", "devices": [0]}]},
                {"name": "x", "roles": [{"gpu": 0.5}], "pods": [{"node": "n", "devices": [0]}]},
            ),
            "workloads[1].pods[0].devices",
        ),
    ],
)  # fmt: skip
def test_error_names_the_offending_key(data: object, path: str) -> None:
    assert rejection_message(data).startswith(f"{path}: ")


def test_circular_dependencies_are_rejected() -> None:
    line = rejection_message(
        scenario_with_workload(
            {"name": "a", "after": [{"workload": "b"}]}, {"name": "b", "after": [{"workload": "a"}]}
        )
    )
    assert "is blocked by a dependency cycle" in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x [1, *x]\n", "a[1]: contains itself"),
        (BOMB, "repeats too many values through aliases"),
        ("a: 1\na: 2\n", "twice"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"format": "berth.scenario/1", "cycle_seconds": NaN}', "cycle_seconds: "),
        ("a: [", "YAML"),
        ("[" * 100_000, ""),
        ("a: !!python/object:os.system x\n", "YAML"),
        ("", "not a scenario"),
    ],
)
def test_unsafe_yaml_and_unsupported_formats_are_rejected(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    assert words in rejection_message(path)


def test_yaml_aliases_are_resolved(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("{format: berth.scenario/1, nodes: [&n {name: a, gpus: 2}, {<<: *n, name: b}]}")
    assert [(node.name, node.gpus) for node in load(path).snapshot.nodes] == [("a", 2), ("b", 2)]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_unreadable_scenario_file_is_rejected(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "scenario.yaml"
    if content is not None:
        path.write_bytes(content)
    assert "cannot be read" in rejection_message(path)


def pool_quota(quota: dict[str, Any]) -> PoolQuota:
    department = {"name": "d", "rank": 2, "quotas": {"default": quota}}
    return load({**FORMAT, "departments": [department]}).snapshot.queues[0].pool_quotas["default"]


@pytest.mark.parametrize(
    ("quota", "bounds"),
    [
        ({"gpu": 4}, Bounds(4000, None, None)),
        ({"gpu": None}, Bounds(None, None, None)),
        ({"weight": 2}, Bounds(0, None, None)),
        ({"gpu": 0.5, "cpu": 2}, Bounds(500, 2000, 0)),
        ({"gpu": 1, "cpu": None, "memory_mib": 5}, Bounds(1000, None, 5)),
    ],
)
def test_null_quota_is_unlimited_and_absent_quota_is_zero(quota: dict[str, Any], bounds: Bounds) -> None:
    assert pool_quota(quota).quota == bounds


def test_quota_weight_may_be_one_number_or_one_per_resource() -> None:
    assert pool_quota({"weight": 2}).weights == (2.0, 2.0, 2.0)
    assert pool_quota({"weight": {"gpu": 2, "cpu": 0}}).weights == (2.0, 0.0, 1.0)
    assert pool_quota({"limit": {"gpu": 3}}).limit == Bounds(3000, None, None)
    assert pool_quota({}).rank == 2


def test_pods_without_specified_devices_use_the_remaining_devices() -> None:
    snapshot = load(
        scenario_with_workload(
            {"name": "any", "pods": [{"node": "n"}]},
            {"name": "first", "pods": [{"node": "n", "devices": [0]}]},
        )
    ).snapshot
    assert [workload.pods[0].devices for workload in snapshot.workloads] == [(1,), (0,)]


def test_pods_with_half_a_device_are_packed_on_one_device_or_spread_over_two() -> None:
    half = {"roles": [{"gpu": 0.5}], "pods": [{"node": "n"}]}
    packed = scenario_with_workload({"name": "a", **half}, {"name": "b", **half})
    spread = {**packed, "pools": [{"name": "default", "placement": {"devices": "spread"}}]}
    assert [w.pods[0].devices for w in load(packed).snapshot.workloads] == [(0,), (0,)]
    assert [w.pods[0].devices for w in load(spread).snapshot.workloads] == [(0,), (1,)]
    assert load(spread).snapshot.pools[0].node_strategy is Strategy.BINPACK


def test_reservation_may_use_devices_of_a_stopping_pod() -> None:
    snapshot = load(
        scenario_with_workload(
            {"name": "a", "roles": [{"gpu": 2}], "pods": [{"node": "n", "state": "stopping"}]},
            {"name": "b", "roles": [{"gpu": 2}], "pods": [{"node": "n", "state": "reserved"}]},
        )
    ).snapshot
    assert [w.pods[0].state for w in snapshot.workloads] == [PodState.STOPPING, PodState.RESERVED]


def test_department_and_project_may_share_a_name() -> None:
    document = {
        **FORMAT,
        "departments": [{"name": "Vision & Co"}],
        "projects": [{"name": "Vision & Co", "department": "Vision & Co"}],
    }
    department, project = load(document).snapshot.queues
    assert (project.name, project.parent) == ("Vision & Co", department.name)
    assert department.name != project.name


def test_named_priority_decides_whether_a_workload_is_preemptible() -> None:
    snapshot = load(
        scenario_with_workload({"name": "a", "priority": "high"}, {"name": "b", "priority": "low"})
    ).snapshot
    assert [(w.priority, w.preemptible) for w in snapshot.workloads] == [(125, False), (40, True)]


def test_booting_node_may_declare_its_ready_time() -> None:
    nodes = [{"name": "n", "state": "booting", "ready_at": "2026-01-01T00:01:00Z"}]
    (node,) = load({**FORMAT, "nodes": nodes}).snapshot.nodes
    assert (node.state, node.ready_at) == (NodeState.BOOTING, 1_767_225_660)


def test_simulate_command_prints_text_or_json(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(scenario_with_workload({"name": "w"})))
    status, text = run(path)
    assert status == 0
    assert "start w: 1 x worker to n" in text
    status, text = run(path, as_json=True)
    assert (status, json.loads(text)["workloads"]["w"]["phase"]) == (0, "running")


def test_invalid_scenario_file_causes_exit_status_2_and_a_one_line_error(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("format: berth.scenario/1\nnodes: [{name: n, gpu: 1}]\n")
    assert run(path) == (2, "nodes[0].gpu: unknown key; received 'gpu'. Did you mean `gpus`?")


def test_simulation_runs_only_the_listed_actions(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(scenario_with_workload({"name": "w"})))
    assert "No decisions." in run(path, actions=["stale_gangs"])[1]
    assert run(path, actions=["magic"])[0] == 2
