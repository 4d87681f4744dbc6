"""Tests for usage decay by half-life, window and calendar."""

import math
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import pytest

from scheduler.engine.model import FairShareMode, Usage
from scheduler.simulator import load, play_scenario
from scheduler.simulator.usage_history import AllocationRates, UsageHistory

BUSY = AllocationRates((1000.0, 0.0, 0.0), (2000.0, 0.0, 0.0))
IDLE = AllocationRates((0.0, 0.0, 0.0), (2000.0, 0.0, 0.0))


def used(mode: FairShareMode, *stretches: tuple[int, AllocationRates], since: int = 0) -> Usage:
    history, now = UsageHistory.start(mode, Usage(), since), since
    for seconds, rates in stretches:
        history.advance(now, now + seconds, rates)
        now += seconds
    return history.usage


@pytest.mark.shows("RAI-79")
def test_usage_halves_after_one_half_life() -> None:
    mode = FairShareMode(True, half_life=100)
    fresh = used(mode, (10, BUSY)).used[0]
    assert used(mode, (10, BUSY), (100, IDLE)).used[0] == pytest.approx(fresh / 2)


def test_decayed_usage_does_not_depend_on_cycle_length() -> None:
    mode = FairShareMode(True, half_life=100)
    whole, cut = used(mode, (60, BUSY)), used(mode, (7, BUSY), (23, BUSY), (30, BUSY))
    assert cut.used[0] == pytest.approx(whole.used[0])
    assert whole.used[0] == pytest.approx(1000 * 100 / math.log(2) * (1 - 2 ** (-0.6)))


def test_queue_usage_as_a_fraction_of_the_parents_does_not_decay() -> None:
    for seconds in (1, 50, 5000):
        assert used(FairShareMode(True, half_life=100), (seconds, BUSY)).fraction_of_parent(
            0
        ) == pytest.approx(0.5)


@pytest.mark.shows("RAI-74")
def test_sliding_window_ignores_older_usage() -> None:
    mode = FairShareMode(True, window=100)
    assert used(mode, (40, BUSY), (60, IDLE)).used[0] == 40_000
    assert used(mode, (40, BUSY), (80, IDLE)).used[0] == 20_000
    assert used(mode, (40, BUSY), (500, IDLE)).used[0] == 0


def test_tumbling_window_starts_at_zero() -> None:
    mode = FairShareMode(True, window=100, tumbling=True)
    assert used(mode, (90, BUSY)).used[0] == 90_000
    assert used(mode, (90, BUSY), (20, BUSY)).used[0] == 10_000


def test_usage_window_and_half_life_can_be_combined() -> None:
    mode = FairShareMode(True, half_life=100, window=100)
    history = UsageHistory.start(mode, Usage((1.0, 0.0, 0.0), (2.0, 0.0, 0.0)), 1000)
    history.advance(1000, 1100, IDLE)
    assert history.usage.used[0] == pytest.approx(0.0)


HALF_LIFE = 40
Sizes = tuple[int, ...]  # GPUs requested by a queue's workloads, in order


def allocation_by_cycle(
    sizes: Mapping[str, Sizes],
    weights: dict[str, float] | None = None,
    departments: dict[str, str] | None = None,
    half_lives: int = 8,
    min_jobs: int = 2,
    **mode: Any,
) -> tuple[list[dict[str, int]], int]:
    """Return the GPUs of a 16-GPU node allocated to each queue in each cycle, and the number of evictions."""
    settings = {"mode": "time_based", "half_life": HALF_LIFE, "k": 1.0} | mode
    above = departments or dict.fromkeys(sizes, "d")
    document: dict[str, Any] = {
        "format": "berth.scenario/1",
        "pools": [{"name": "default", "fairshare": settings}],
        "nodes": [{"name": "n", "gpus": 16}],
        "departments": [{"name": d, "quotas": {"default": {"gpu": 0}}} for d in sorted(set(above.values()))],
        "projects": [
            {"name": q, "department": above[q],
             "quotas": {"default": {"gpu": 0, "weight": (weights or {}).get(q, 1)}}}
            for q in sizes
        ],
        "workloads": [
            {"name": f"{q}-{n:02}", "project": q, "roles": [{"gpu": requested[n % len(requested)]}]}
            for q, requested in sizes.items()
            for n in range(max(min_jobs, 16 // min(requested)))
        ],
    }  # fmt: skip
    played = play_scenario(load(document), cycles=half_lives * HALF_LIFE + 1)
    held = []
    for snapshot, _ in played.cycles[1:]:
        gpus = dict.fromkeys(sizes, 0)
        for workload in snapshot.workloads:
            gpus[workload.project] += sum(len(p.devices) for p in workload.pods if p.state == "running")
        held.append(gpus)
    evicted = sum(len(bundle.evictions) for _, plan in played.cycles for bundle in plan.bundles)
    return held, evicted


def allocated_fractions(held: list[dict[str, int]]) -> dict[str, float]:
    """Return each queue's fraction of all allocated GPUs."""
    whole = sum(sum(gpus.values()) for gpus in held)
    return {queue: sum(gpus[queue] for gpus in held) / whole for queue in held[0]}


def longest_run(held: list[dict[str, int]], queue: str, holding: bool) -> int:
    runs = [len(list(run)) for has, run in groupby(gpus[queue] > 0 for gpus in held) if has is holding]
    return max(runs, default=0)


@pytest.mark.shows("RAI-75", "RAI-76", "RAI-77", "RAI-78", "RAI-81")
@pytest.mark.parametrize(
    ("queues", "gpus"),
    [
        pytest.param(2, 9, marks=pytest.mark.heavy),
        (3, 16),
        pytest.param(2, 16, marks=pytest.mark.heavy),
        pytest.param(6, 9, marks=pytest.mark.heavy),
    ],
)
def test_queues_with_unlimited_demand_take_turns(queues: int, gpus: int) -> None:
    # Each queue runs for its share of the time, within a tenth. No turn is longer than a half-life.
    sizes = {f"q{number}": (gpus,) for number in range(queues)}
    held, evicted = allocation_by_cycle(sizes)
    for queue, part in allocated_fractions(held).items():
        assert part == pytest.approx(1 / queues, rel=0.1), allocated_fractions(held)
        assert longest_run(held, queue, holding=True) <= HALF_LIFE
        assert longest_run(held, queue, holding=False) <= (queues - 1) * HALF_LIFE
    assert evicted <= 20 * queues  # evictions end turns and do not happen in every cycle


@pytest.mark.heavy
@pytest.mark.shows("RAI-78")
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(((16,), (9,), (1,)), id="16 against 9 and 1"),
        pytest.param(((16,), (8,)), id="16 against 8"),
        pytest.param(((16,), (4,), (4,)), id="16 against 4 and 4"),
        pytest.param(((16,), (2, 1)), id="16 against small ones"),
    ],
)
def test_large_gang_takes_turns_with_small_workloads(sizes: tuple[Sizes, ...]) -> None:
    queues = {f"q{number}": gpus for number, gpus in enumerate(sizes)}
    held, evicted = allocation_by_cycle(queues)
    for queue, part in allocated_fractions(held).items():
        assert part == pytest.approx(1 / len(queues), rel=0.1), allocated_fractions(held)
        assert longest_run(held, queue, holding=True) <= 2 * HALF_LIFE
    stopped_by_one_change = 16 // min(min(gpus) for gpus in sizes)
    assert evicted <= 40 * stopped_by_one_change


@pytest.mark.heavy
def test_queues_take_turns_in_proportion_to_their_weights() -> None:
    held, _ = allocation_by_cycle({"a": (16,), "b": (16,), "c": (16,)}, {"a": 3, "b": 2, "c": 1})
    assert allocated_fractions(held) == pytest.approx({"a": 3 / 6, "b": 2 / 6, "c": 1 / 6}, rel=0.1)


@pytest.mark.parametrize(
    "weights",
    [pytest.param({}, id="alike", marks=pytest.mark.heavy), pytest.param({"a": 3, "b": 1}, id="3 and 1")],
)
def test_departments_and_their_projects_take_turns(weights: dict[str, float]) -> None:
    above = {"a": "one", "b": "one", "c": "two"}
    held, _ = allocation_by_cycle({"a": (16,), "b": (16,), "c": (16,)}, weights, departments=above)
    part_of_a = weights.get("a", 1) / (weights.get("a", 1) + weights.get("b", 1)) / 2
    assert allocated_fractions(held) == pytest.approx(
        {"a": part_of_a, "b": 0.5 - part_of_a, "c": 0.5}, rel=0.1
    )


@pytest.mark.heavy
@pytest.mark.shows("RAI-78")
@pytest.mark.parametrize(
    ("sizes", "departments"),
    [
        (((9,), (4,), (1,)), "one one two"),
        (((16,), (1,), (1,)), "one one two"),
        (((12,), (1,), (6,)), "one one two"),
        (((16,), (1,), (16,), (1,)), "one one two two"),
        (((16,), (16,), (2,), (4,)), "one one one two"),
        (((8,), (1,), (1,), (1,)), "one one two three"),
    ],
    ids=str,
)
def test_queue_with_a_workload_larger_than_the_department_share_gets_its_share_of_gpu_time(
    sizes: tuple[Sizes, ...], departments: str
) -> None:
    # Its project, its siblings and the other departments get their shares. Turns last for a while.
    queues = {f"q{number}": gpus for number, gpus in enumerate(sizes)}
    above = dict(zip(queues, departments.split(), strict=True))
    held, evicted = allocation_by_cycle(queues, departments=above, half_lives=12, min_jobs=32)
    later = held[4 * HALF_LIFE :]
    fractions, siblings = allocated_fractions(later), list(above.values())
    for queue, part in fractions.items():
        share = 1 / len(set(siblings)) / siblings.count(above[queue])
        assert part == pytest.approx(share, rel=0.1), fractions
    assert all(longest_run(later, queue, holding=False) <= HALF_LIFE for queue in queues)
    assert evicted <= 12 * 40  # up to 16 workloads are evicted each time that a large one starts


@pytest.mark.heavy
def test_workloads_larger_than_the_department_share_take_turns_in_proportion_to_weights() -> None:
    queues, above = {"a": (16,), "b": (1,), "c": (1,)}, {"a": "one", "b": "one", "c": "two"}
    held, _ = allocation_by_cycle(queues, {"a": 3}, above, half_lives=12, min_jobs=32)
    assert allocated_fractions(held[4 * HALF_LIFE :]) == pytest.approx(
        {"a": 0.375, "b": 0.125, "c": 0.5}, rel=0.1
    )


@pytest.mark.heavy
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param({"half_life": None, "window": 80}, id="window"),
        pytest.param({"window": 80}, id="both"),
    ],
)
def test_queues_with_a_sliding_window_take_turns(mode: dict[str, Any]) -> None:
    held, _ = allocation_by_cycle({"a": (16,), "b": (16,), "c": (16,)}, **mode)
    assert allocated_fractions(held) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, rel=0.15)


MIXED = [
    ((8,), (3,)),
    ((8, 1), (1, 8)),
    ((3,), (1,)),
    ((3,), (2,)),
    ((4,), (3,), (2,)),
    ((8,), (1,), (3,)),
    ((3,), (3,), (3,), (3,), (1,)),
]


@pytest.mark.heavy
@pytest.mark.shows("RAI-78")
@pytest.mark.parametrize("sizes", MIXED, ids=str)
def test_queues_with_uneven_workload_sizes_get_equal_shares_over_time(sizes: tuple[Sizes, ...]) -> None:
    held, evicted = allocation_by_cycle(
        {f"q{number}": gpus for number, gpus in enumerate(sizes)}, half_lives=12
    )
    later = held[4 * HALF_LIFE :]
    for part in allocated_fractions(later).values():
        assert part == pytest.approx(1 / len(sizes), rel=0.1), allocated_fractions(later)
    assert evicted <= 31 * 12  # backoffs are short, because runs last for less than half a minute (ADR 59)


@pytest.mark.heavy
def test_rounded_up_unit_stays_with_its_queue_across_cycles() -> None:
    # Seventeen queues take turns on sixteen GPUs. Each turn must last a while, not just a second.
    held, evicted = allocation_by_cycle({f"q{number:02}": (1,) for number in range(17)}, half_lives=4)
    assert evicted <= 4 * 6
    assert len({queue for gpus in held for queue, gpu in gpus.items() if not gpu}) >= 8


@pytest.mark.shows("RAI-74", "RAI-78")
@pytest.mark.parametrize(
    "sizes",
    [
        ((16,), (1,)),
        pytest.param(((16,), (16,)), marks=pytest.mark.heavy),
        pytest.param(((16,),) * 3, marks=pytest.mark.heavy),
    ],
    ids=str,
)
def test_shares_are_equal_within_each_calendar_window(sizes: tuple[Sizes, ...]) -> None:
    # A window's imbalance is forgotten at its end, so it must be balanced within the window.
    window = 120
    queues = {f"q{number}": gpus for number, gpus in enumerate(sizes)}
    held, _ = allocation_by_cycle(queues, half_lives=9, half_life=None, window=window, tumbling=True)
    for begin in range(0, 3 * window, window):
        for part in allocated_fractions(held[begin : begin + window]).values():
            assert part == pytest.approx(1 / len(sizes), rel=0.07), begin


@pytest.mark.shows("RAI-82")
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((16, 16), marks=pytest.mark.heavy),
        (9, 9),
        pytest.param((1, 1), marks=pytest.mark.heavy),
        (4, 2),
    ],
)
def test_usage_history_has_no_effect_when_k_is_zero(sizes: tuple[int, int]) -> None:
    # Every cycle matches point-in-time fair shares.
    queues = {"a": (sizes[0],), "b": (sizes[1],)}
    now = allocation_by_cycle(queues, half_lives=2, mode="point_in_time")
    assert allocation_by_cycle(queues, half_lives=2, k=0.0) == now


def test_time_based_fairness_never_reclaims_allocations_within_quota() -> None:
    # A queue keeps its quota regardless of usage, and a queue below its quota gets it back immediately.
    document: dict[str, Any] = {
        "format": "berth.scenario/1",
        "pools": [{"name": "default", "fairshare": {"mode": "time_based", "half_life": 40, "count": "all"}}],
        "nodes": [{"name": "n", "gpus": 16}],
        "departments": [{"name": "d", "quotas": {"default": {"gpu": 16}}}],
        "projects": [
            {"name": "owner", "department": "d", "quotas": {"default": {"gpu": 16}}},
            {"name": "guest", "department": "d", "quotas": {"default": {"gpu": 0}}},
        ],
        "workloads": [
            {"name": "mine", "project": "owner", "roles": [{"gpu": 16}], "submitted": "2026-01-01T00:00:00Z"},
            {"name": "theirs", "project": "guest", "roles": [{"gpu": 16}],
             "pods": [{"node": "n", "started": "2025-12-31T23:59:59Z"}]},
        ],
    }  # fmt: skip
    played = play_scenario(load(document), cycles=100)
    assert [e.rule for e in played.cycles[0][1].bundles[0].evictions] != []
    holders = {
        workload.name
        for snapshot, _ in played.cycles[2:]
        for workload in snapshot.workloads
        if any(pod.state == "running" for pod in workload.pods)
    }
    assert holders == {"mine"}
