"""Tests that a broken scenario file leads to a result or to a one-line error."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulator import ScenarioError, load, run, simulate
from tests.engine.test_invariants import on_random_clusters

ROOT = Path(__file__).resolve().parents[3]
VALID_SCENARIO: dict[str, Any] = {
    "format": "berth.scenario/1",
    "now": "2026-01-01T00:00:00Z",
    "cycle_seconds": 10,
    "pools": [
        {"name": "default", "placement": "binpack", "topology": ["rack"], "nodes": {"min": 0, "max": 4},
         "fairshare": {"mode": "time_based", "half_life": 600, "window": 900, "k": 0.5, "count": "all"},
         "consolidation": {"enabled": True, "max_moves": 3}, "reservation_after": 60},
    ],
    "nodes": [
        {"name": "n0", "gpus": 4, "gpu_memory_mib": 16000, "cpu": 32, "memory_mib": 64000,
         "labels": {"rack": "r1"}},
        {"name": "n1", "gpus": 4, "cpu": 32, "memory_mib": 64000, "labels": {"rack": "r2"},
         "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}], "state": "ready"},
    ],
    "departments": [{"name": "d", "rank": 1, "quotas": {"default": {"gpu": 8, "limit": {"gpu": 8}}}}],
    "projects": [
        {"name": "p", "department": "d", "created": "2025-01-01T00:00:00Z",
         "quotas": {"default": {"gpu": 4, "weight": {"gpu": 2}}}, "usage": {"default": {"gpu": 0.2}}},
        {"name": "q", "department": "d", "quotas": {"default": {"gpu": 1}}},
    ],
    "workloads": [
        {"name": "a", "project": "p", "priority": "high", "submitted": "2025-12-31T00:00:00Z",
         "runtime_seconds": 25, "max_runtime": 100,
         "roles": [{"name": "w", "min": 1, "max": 3, "gpu": 1, "cpu": 1, "memory_mib": 100}],
         "pods": [{"role": "w", "index": 0, "node": "n0", "devices": [0], "state": "running",
                   "started": "2025-12-31T00:30:00Z"}]},
        {"name": "b", "project": "q", "topology": {"required": "rack"},
         "groups": [{"name": "g", "need": 1, "roles": [{"name": "x", "replicas": 2, "gpu": 0.5}]}]},
        {"name": "c", "project": "q", "after": [{"workload": "a"}], "roles": [{"gpu": 8}]},
    ],
    "reservations": [{"workload": "b", "role": "x", "index": 0, "node": "n0", "devices": [1]}],
}  # fmt: skip

KeyPath = tuple[str | int, ...]
ODD_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([10**30, -(10**30), 1e308, -0.0]),
    st.floats(), st.text(max_size=8), st.just([]), st.just({}), st.just([[[[]]]]), st.just({"a": {"b": []}}),
    st.sampled_from(["n0", "p", "d", "nobody", "2026-01-01", "2026-01-01T00:00:00", "NaN", "1e999", "\x00"]),
)  # fmt: skip


def places(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of every key and item, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


PLACES = list(places(VALID_SCENARIO))


@st.composite
def broken_scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid scenario file with a few mutations: parts removed, duplicated, renamed or replaced."""
    document = copy.deepcopy(VALID_SCENARIO)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(PLACES))
        holder: Any = document
        try:
            for key in way:
                holder = holder[key]
            present = holder[last]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier mutation has removed this key
        match draw(st.sampled_from(["replace", "lose", "double", "rename", "negate"])):
            case "lose":
                del holder[last]
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(present))
            case "rename" if isinstance(holder, dict):
                holder[f"{last}s"] = holder.pop(last)
            case "negate" if isinstance(present, int | float):
                holder[last] = -present
            case _:
                holder[last] = draw(ODD_VALUES)
    return document


@on_random_clusters(50)
@given(document=broken_scenarios())
def test_mutated_scenario_is_simulated_or_rejected_with_a_one_line_error(document: dict[str, Any]) -> None:
    try:
        answer = simulate(document, cycles=3)
    except ScenarioError as rejected:
        line = str(rejected)
        assert line
        assert "\n" not in line
        assert all(problem.message for problem in rejected.problems)
    else:
        json.dumps(answer, allow_nan=False)


def test_unmutated_scenario_is_valid() -> None:
    assert simulate(VALID_SCENARIO, cycles=3)["workloads"]["a"]["phase"] == "completed"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("nodes", 0, "gpus"), -1, "nodes[0].gpus"),
        (("nodes", 0, "gpu"), 1, "nodes[0].gpu"),
        (("nodes", 0, "cpu"), float("nan"), "nodes[0].cpu"),
        (("now",), "2026-01-01T00:00:00", "now"),
        (("projects", 0, "department"), "nobody", "projects[0].department"),
        (("projects", 1, "name"), "p", "projects[0].name"),
        (("workloads", 0, "pods", 0, "node"), "n9", "workloads[0].pods[0].node"),
        (("workloads", 0, "pods", 0, "devices"), [7], "workloads[0].pods[0].devices"),
        (("workloads", 0, "roles", 0, "gpu"), "two", "workloads[0].roles[0].gpu"),
        (("workloads", 1, "groups", 0, "roles", 0, "gpu"), -0.5, "workloads[1].groups[0].roles[0].gpu"),
        (("workloads", 0, "after"), [{"workload": "c"}], "workloads[0].after"),
        (("workloads", 2, "project"), "nobody", "workloads[2].project"),
        (("pools", 0, "fairshare", "k"), -1, "pools[0].fairshare.k"),
        (("pools", 0, "fairshare", "half_life"), 0, "pools[0].fairshare.half_life"),
    ],
)
def test_scenario_error_names_the_invalid_key(path: KeyPath, value: Any, expected: str) -> None:
    document = copy.deepcopy(VALID_SCENARIO)
    holder: Any = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(ScenarioError) as rejected:
        load(document)
    assert expected in str(rejected.value)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([{"role": "w", "index": 0, "node": "n9"}], "no such node; received 'n9'; allowed: n0, n1"),
        ([{"role": "v", "node": "n0"}], "no such role; received 'v'; allowed: w"),
        ([{"role": "w", "node": "n0"}] * 5, "more GPUs than n0 has; received 1 GPU; allowed: 4 GPUs for"),
    ],
)
def test_error_names_the_invalid_value_and_the_allowed_values(pods: list[Any], expected: str) -> None:
    document = copy.deepcopy(VALID_SCENARIO)
    document["workloads"][0] |= {"pods": pods}
    document["workloads"][0]["roles"][0]["max"] = 9
    with pytest.raises(ScenarioError) as rejected:
        load(document)
    assert expected in str(rejected.value)


@on_random_clusters(25)
@given(place=st.integers(0, 10**6), junk=st.binary(max_size=4), cut=st.booleans())
def test_damaged_scenario_file_is_simulated_or_rejected_with_status_2(
    tmp_path_factory: pytest.TempPathFactory, place: int, junk: bytes, cut: bool
) -> None:
    text = (ROOT / "examples" / "scenarios" / "reclaim.yaml").read_bytes()
    at = place % len(text)
    file = tmp_path_factory.getbasetemp() / "damaged.yaml"
    file.write_bytes(text[:at] + junk + (b"" if cut else text[at + 1 :]))
    status, output = run(file)
    assert status in (0, 2)
    assert status == 0 or (output and "\n" not in output)
