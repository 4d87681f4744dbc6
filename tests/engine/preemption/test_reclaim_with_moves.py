"""Tests that the engine combines evictions and moves whenever a brute-force search finds such a plan."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from scheduler.engine.decide import decide
from scheduler.simulator import load
from tests.engine.preemption.test_reclaim_against_brute_force import NOW, PATHS, reference_input
from tests.engine.reference.combined import missing_quota, sufficient_victims

SHAPES = {"3x4": (3, 4), "2x8": (2, 8), "4x8": (4, 8)}


def crowded_cluster(random: Random, nodes: int, gpus: int, *, has_quotas: bool = True) -> dict[str, Any]:
    """Return a nearly full cluster with a pending gang that is within its quota and needs most of a node."""
    free = {f"n{i}": gpus for i in range(nodes)}
    leave = random.choice([0, 0, 1, 1, 2, 3])
    work: list[dict[str, Any]] = []
    held = dict.fromkeys(PATHS, 0)
    while sum(free.values()) > leave:
        size, pods = random.choice([1, 1, 1, 1, 2, 2, gpus // 2]), random.choice([1, 1, 1, 1, 2])
        on: list[str] = []
        for _ in range(pods):
            room = [node for node, left in free.items() if left >= size]
            if room:
                on.append(random.choice(room))
                free[on[-1]] -= size
        if on:
            project = random.choice("aaaabc")
            held[project] += size * len(on)
            work.append(_job(f"w{len(work)}", project, size, on, random))
    replicas = random.choice([1, 1, 1, 2])
    size, project = random.randint(gpus // 2, gpus) // replicas, random.choice("bc")
    quotas = _quotas(random, nodes * gpus)
    quotas[project] = max(quotas[project], held[project] + size * replicas)
    departments = {"d": quotas["a"] + quotas["b"], "e": quotas["c"]}
    new = {"name": "new", "project": project, "roles": [{"name": "r", "replicas": replicas, "gpu": size}]}
    return {
        "format": "berth.scenario/1",
        "now": NOW,
        "nodes": [{"name": name, "gpus": gpus} for name in free],
        "departments": [
            {"name": name, "quotas": {"default": {"gpu": quota * has_quotas}}}
            for name, quota in departments.items()
        ],
        "projects": [
            {
                "name": name,
                "department": path[0],
                "quotas": {"default": {"gpu": quotas[name] * has_quotas}},
            }
            for name, path in PATHS.items()
        ],
        "workloads": [*work, new],
    }


def _quotas(random: Random, total: int) -> dict[str, int]:
    first, second = sorted(random.randint(0, total) for _ in range(2))
    return {"a": first // 2, "b": second - first, "c": total - second}


def _job(name: str, project: str, gpus: int, on: list[str], random: Random) -> dict[str, Any]:
    started = NOW - 3600 * random.randint(1, 5)
    return {
        "name": name,
        "project": project,
        "preemptible": random.random() > 0.1,
        "roles": [{"name": "r", "replicas": len(on), "gpu": gpus}],
        "pods": [{"node": node, "started": started} for node in on],
    }


@dataclass
class Comparison:
    """Clusters for which a plan exists, and those for which the engine missed the best plan."""

    existing: int = 0
    rejected: list[str] = field(default_factory=list)
    below_quota: list[str] = field(default_factory=list)


def compare(shape: str, count: int, *, has_quotas: bool) -> Comparison:
    result = Comparison()
    for seed in range(count):
        label = f"{shape}/{seed}"
        snapshot = load(crowded_cluster(Random(label), *SHAPES[shape], has_quotas=has_quotas)).snapshot
        plan = decide(snapshot)
        cluster, newcomer = reference_input(snapshot, plan)
        best = min((victims.below_quota for victims in sufficient_victims(cluster, newcomer)), default=None)
        if best is None:
            continue
        result.existing += 1
        stopped = {e.workload for bundle in plan.bundles for e in bundle.evictions if e.whole}
        chosen = [gang for gang in cluster.gangs if gang.name in stopped]
        if not any(bundle.workload == "new" for bundle in plan.bundles):
            result.rejected.append(label)
        elif best == 0 and missing_quota(cluster, newcomer, chosen):
            result.below_quota.append(label)
    return result


@pytest.mark.shows("RAI-22", "RAI-31", "RAI-33", "RAI-36")
@pytest.mark.parametrize("has_quotas", [True, False], ids=["quotas", "shares"])
@pytest.mark.parametrize("shape", ["3x4", "2x8", pytest.param("4x8", marks=pytest.mark.heavy)])
def test_reclaim_finds_a_plan_if_one_exists_and_respects_quotas(shape: str, has_quotas: bool) -> None:
    result = compare(shape, 60, has_quotas=has_quotas)
    assert result.existing > 15
    assert (result.rejected, result.below_quota) == ([], [])


@pytest.mark.heavy
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("has_quotas", [True, False], ids=["quotas", "shares"])
@pytest.mark.parametrize("shape", SHAPES)
def test_reclaim_search_misses_at_most_one_percent_of_existing_plans(shape: str, has_quotas: bool) -> None:
    result = compare(shape, 1500, has_quotas=has_quotas)
    assert len(result.rejected) <= result.existing / 100, result.rejected
    assert result.below_quota == []
