"""Tests that fair shares match worked examples and a simple calculation."""

from fractions import Fraction
from typing import Any

import pytest

from scheduler.simulator import load, play_scenario
from tests.engine.reference.fair_share import Claimant, fair_shares

GPU = 1000


def computed_shares(total: int, queues: list[dict[str, Any]], **pool: Any) -> dict[str, float]:
    _, plan = play_scenario(load(document(total, queues, **pool))).cycles[0]
    return {report.queue: report.share.gpu / GPU for report in plan.queues if report.queue != "all"}


def document(total: int, queues: list[dict[str, Any]], **pool: Any) -> dict[str, Any]:
    """Return a scenario with one department whose projects request whole GPUs and have none allocated."""
    return {
        "format": "berth.scenario/1",
        "pools": [{"name": "default", **pool}],
        "nodes": [{"name": "n", "gpus": total, "cpu": 64, "memory_mib": 1000}],
        "departments": [{"name": "all", "quotas": {"default": {"gpu": None}}}],
        "projects": [
            {
                "name": queue["name"],
                "department": "all",
                "rank": queue.get("rank", 0),
                "created": queue.get("created", 0),
                "quotas": {"default": {"gpu": queue["quota"], "weight": queue.get("weight", 1)}},
                "usage": {"default": {"gpu": queue.get("usage", 0)}},
            }
            for queue in queues
        ],
        "workloads": [
            {"name": f"{queue['name']}-{n}", "project": queue["name"], "roles": [{"gpu": 1}]}
            for queue in queues
            for n in range(queue["wants"])
        ],
    }


def queue(name: str, quota: int, wants: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "quota": quota, "wants": wants, **more}


CASES = [
    pytest.param(
        100,
        [queue("a", 10, 100, weight=3), queue("b", 10, 100, weight=1)],
        {},
        {"a": 70, "b": 30},
        id="weights divide the remainder after quotas",
        marks=pytest.mark.shows("RAI-04", "RAI-05", "RAI-25", "RAI-40", "RAI-42", "RAI-59", "RAI-60"),
    ),
    pytest.param(
        11,
        [queue("a", 2, 10, weight=1), queue("b", 2, 10, weight=4)],
        {},
        {"a": 3, "b": 8},
        id="leftover units go by largest remainder",
    ),
    pytest.param(
        11,
        [queue("a", 2, 6, weight=2, created=1), queue("b", 2, 6, weight=2, created=2)],
        {},
        {"a": 6, "b": 5},
        id="the older queue gets the odd unit",
    ),
    pytest.param(
        11,
        [queue("a", 2, 6, weight=2, created=2), queue("b", 2, 6, weight=2, created=1)],
        {},
        {"a": 5, "b": 6},
        id="age goes before the name",
    ),
    pytest.param(
        20,
        [queue("a", 5, 15), queue("b", 5, 5)],
        {},
        {"a": 15, "b": 5},
        id="lower demand leaves more to the other queue",
        marks=pytest.mark.shows("RAI-51"),
    ),
    pytest.param(
        20,
        [queue("a", 5, 20), queue("b", 5, 20)],
        {},
        {"a": 10, "b": 10},
        id="equal queues get equal shares",
        marks=pytest.mark.shows("RAI-50"),
    ),
    pytest.param(
        1,
        [
            queue("a", 0, 5, rank=2, created=2),
            queue("b", 0, 5, rank=2, created=1),
            queue("c", 0, 5, rank=1, created=0),
        ],
        {},
        {"a": 0, "b": 1, "c": 0},
        id="rank goes before age",
        marks=pytest.mark.shows("RAI-07", "RAI-48"),
    ),
    pytest.param(
        10, [queue("a", 8, 8), queue("b", 8, 8)], {}, {"a": 5, "b": 5}, id="oversold quotas shrink equally"
    ),
    pytest.param(
        10,
        [queue("a", 8, 8, rank=1), queue("b", 8, 8, rank=0)],
        {},
        {"a": 8, "b": 2},
        id="rank decides between oversold quotas",
        marks=pytest.mark.shows("RAI-02", "RAI-47"),
    ),
    pytest.param(
        30,
        [queue("a", 6, 40, weight=3), queue("b", 4, 40, weight=2), queue("c", 0, 40, weight=1)],
        {},
        {"a": 16, "b": 11, "c": 3},
        id="half of twenty unused GPUs in addition to six",
        marks=pytest.mark.shows("RAI-61", "RAI-62", "RAI-64"),
    ),
    pytest.param(
        30,
        [queue("a", 20, 40, weight=1), queue("b", 0, 40, weight=9), queue("c", 4, 40, weight=5)],
        {"over_quota_weights": False},
        {"a": 25, "b": 0, "c": 5},
        id="weights disabled: quotas act as weights",
        marks=pytest.mark.shows("RAI-41"),
    ),
    pytest.param(
        10,
        [queue("a", 0, 10, usage=1.0), queue("b", 0, 10, usage=0.0)],
        {"fairshare": {"mode": "time_based", "k": 0.5}},
        {"a": 3, "b": 7},
        id="past usage adjusts weights: n + K(n - u)",
        marks=pytest.mark.shows("RAI-73", "RAI-76", "RAI-77"),
    ),
    pytest.param(
        10,
        [queue("a", 0, 10, usage=1.0), queue("b", 0, 10, usage=0.0)],
        {"fairshare": {"mode": "time_based", "k": 0.0}},
        {"a": 5, "b": 5},
        id="K of zero ignores past usage",
        marks=pytest.mark.shows("RAI-82"),
    ),
    pytest.param(
        10,
        [queue("a", 0, 10, usage=1.0), queue("b", 0, 10, usage=0.0)],
        {},
        {"a": 5, "b": 5},
        id="point-in-time mode ignores past usage",
        marks=pytest.mark.shows("RAI-55"),
    ),
    pytest.param(
        8,
        [queue("a", 2, 8, weight=0), queue("b", 0, 8, weight=1)],
        {},
        {"a": 2, "b": 6},
        id="weight zero has no share over quota",
    ),
]


@pytest.mark.parametrize(("total", "queues", "pool", "expected"), CASES)
def test_engine_computes_the_shares_of_the_worked_examples(
    total: int, queues: list[dict[str, Any]], pool: dict[str, Any], expected: dict[str, float]
) -> None:
    assert computed_shares(total, queues, **pool) == expected


@pytest.mark.parametrize(("total", "queues", "pool", "expected"), CASES)
def test_reference_calculation_computes_the_shares_of_the_worked_examples(
    total: int, queues: list[dict[str, Any]], pool: dict[str, Any], expected: dict[str, float]
) -> None:
    claimants = [
        Claimant(
            queue_spec["name"],
            queue_spec["quota"] * GPU,
            queue_spec["wants"] * GPU,
            Fraction(queue_spec.get("weight", 1)),
            queue_spec.get("rank", 0),
            queue_spec.get("created", 0),
            Fraction(queue_spec.get("usage", 0)),
        )
        for queue_spec in queues
    ]
    mode = pool.get("fairshare", {})
    k = Fraction(mode["k"]) if mode else Fraction(0)
    by_quota = pool.get("over_quota_weights") is False
    shares = fair_shares(total * GPU, claimants, unit=GPU, k=k, by_quota=by_quota)
    assert {name: share / GPU for name, share in shares.items()} == expected
