"""Here we show how use fades in a simulation: by half-life, by window, by calendar."""

import math
from itertools import pairwise
from typing import Any

import pytest

from scheduler.engine.model import FairShareMode, Usage
from scheduler.engine.scenario import load, play
from scheduler.engine.scenario.history import History, Rates

BUSY = Rates((1000.0, 0.0, 0.0), (2000.0, 0.0, 0.0))
IDLE = Rates((0.0, 0.0, 0.0), (2000.0, 0.0, 0.0))


def used(mode: FairShareMode, *stretches: tuple[int, Rates], since: int = 0) -> Usage:
    history, now = History.of(mode, Usage(), since), since
    for seconds, rates in stretches:
        history.passes(now, now + seconds, rates)
        now += seconds
    return history.usage


@pytest.mark.shows("RAI-79")
def test_after_one_half_life_half_of_it_counts() -> None:
    mode = FairShareMode(True, half_life=100)
    fresh = used(mode, (10, BUSY)).used[0]
    assert used(mode, (10, BUSY), (100, IDLE)).used[0] == pytest.approx(fresh / 2)


def test_however_time_is_cut_the_integral_is_the_same() -> None:
    mode = FairShareMode(True, half_life=100)
    whole, cut = used(mode, (60, BUSY)), used(mode, (7, BUSY), (23, BUSY), (30, BUSY))
    assert cut.used[0] == pytest.approx(whole.used[0])
    assert whole.used[0] == pytest.approx(1000 * 100 / math.log(2) * (1 - 2 ** (-0.6)))


def test_half_of_what_the_parent_held_is_half_whatever_time_passed() -> None:
    for seconds in (1, 50, 5000):
        assert used(FairShareMode(True, half_life=100), (seconds, BUSY)).normalised(0) == pytest.approx(0.5)


@pytest.mark.shows("RAI-74")
def test_a_window_forgets_what_lies_before_it() -> None:
    mode = FairShareMode(True, window=100)
    assert used(mode, (40, BUSY), (60, IDLE)).used[0] == 40_000
    assert used(mode, (40, BUSY), (80, IDLE)).used[0] == 20_000
    assert used(mode, (40, BUSY), (500, IDLE)).used[0] == 0


def test_a_tumbling_window_starts_from_nothing() -> None:
    mode = FairShareMode(True, window=100, tumbling=True)
    assert used(mode, (90, BUSY)).used[0] == 90_000
    assert used(mode, (90, BUSY), (20, BUSY)).used[0] == 10_000


def test_a_window_over_decay_keeps_both() -> None:
    mode = FairShareMode(True, half_life=100, window=100)
    history = History.of(mode, Usage((1.0, 0.0, 0.0), (2.0, 0.0, 0.0)), 1000)
    history.passes(1000, 1100, IDLE)
    assert history.usage.used[0] == pytest.approx(0.0)


def rotation(queues: int, gpus: int, half_life: int) -> list[str]:
    """Who holds the pool in each cycle, where every queue always wants all of it."""
    names = [f"q{number}" for number in range(queues)]
    document: dict[str, Any] = {
        "format": "berth.scenario/1",
        "pools": [{"name": "default", "fairshare": {"mode": "time_based", "half_life": half_life, "k": 1.0}}],
        "nodes": [{"name": "n", "gpus": gpus}],
        "departments": [{"name": "d", "quotas": {"default": {"gpu": 0}}}],
        "projects": [{"name": name, "department": "d", "quotas": {"default": {"gpu": 0}}} for name in names],
        "workloads": [
            {"name": f"{name}-{number}", "project": name, "roles": [{"gpu": gpus}]}
            for name in names
            for number in range(2)
        ],
    }
    played = play(load(document), cycles=8 * half_life)
    holders = []
    for snapshot, _ in played.cycles[1:]:
        running = [w.project for w in snapshot.workloads if any(pod.state == "running" for pod in w.pods)]
        holders.append(running[0] if running else "")
    return holders


@pytest.mark.shows("RAI-75", "RAI-76", "RAI-77", "RAI-78", "RAI-81")
@pytest.mark.parametrize("queues", [2, 3])
def test_queues_that_want_everything_take_turns(queues: int) -> None:
    """Each holds its part of the time within a tenth of it, and no turn outlasts a half-life."""
    half_life = 40
    holders = rotation(queues, 16, half_life)
    fair = len(holders) / queues
    assert all(abs(holders.count(f"q{n}") - fair) <= fair / 10 for n in range(queues)), holders
    longest = turn = 1
    for before, now in pairwise(holders):
        turn = turn + 1 if now == before else 1
        longest = max(longest, turn)
    assert longest <= half_life
