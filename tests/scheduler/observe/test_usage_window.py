"""Tests that the usage ledger is exact at every change, even with sliding windows."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from pools.models import NodePool
from scheduler.models import Usage, UsagePoint
from scheduler.reports.usage.decayed import UsageRates, decayed_usage, settle_ledger
from scheduler.reports.usage.window import STEPS, store_points, window_starts
from tests.cast import Cast, make_cast
from tests.harness.samples import sample
from tests.scheduler.stage import Stage

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = 2560  # window in seconds, with a point every ten seconds
Story = Sequence[tuple[int, float]]  # (seconds, charge per second)

MODES: dict[str, dict[str, Any]] = {
    "half-life": {"half_life": 900, "window": None, "tumbling_window": False},
    "window": {"half_life": None, "window": WINDOW, "tumbling_window": False},
    "window and half-life": {"half_life": 900, "window": WINDOW, "tumbling_window": False},
    "calendar": {"half_life": None, "window": WINDOW, "tumbling_window": True},
    "calendar and half-life": {"half_life": 900, "window": WINDOW, "tumbling_window": True},
}


def make_story(seed: int, least: int) -> Story:
    dice = Random(seed)
    return [(dice.randint(least, 600), dice.choice([0.0, 0.0, 1000.0, 3500.0])) for _ in range(40)]


def integrated_usage(story: Story, now: int, half_life: float | None, since: int) -> float:
    """Integrate the usage piece by piece from its definition, without a ledger."""
    total, at = 0.0, 0
    for seconds, rate in story:
        early, late = max(at, since), min(at + seconds, now)
        if late > early and half_life is None:
            total += rate * (late - early)
        elif late > early and half_life is not None:
            scale = half_life / math.log(2)
            total += rate * scale * (2 ** ((late - now) / half_life) - 2 ** ((early - now) / half_life))
        at += seconds
    return total


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


def ledger_usage(cast: Cast, story: Story, mode: dict[str, Any], check: Any = None) -> None:
    """Write the ledger at every change and read it back from the database, as after a restart."""
    NodePool.objects.update(fairshare_mode="time_based", **mode)
    pool = NodePool.objects.get()
    Usage.objects.all().delete()
    row = Usage(pool=pool, project=cast.vision, settled_at=BEGIN, used=[0.0] * 3, parent=[0.0] * 3,
                held=[0] * 3, rate=[0.0] * 3, parent_rate=[0.0] * 3)  # fmt: skip
    row.save()
    now = 0
    for seconds, rate in story:
        row = Usage.objects.get()
        rates = UsageRates((0, 0, 0), (rate, 0.0, 0.0), (4000.0, 0.0, 0.0))
        settle_ledger(row, pool, BEGIN + timedelta(seconds=now), rates)
        row.save()
        store_points([row], {pool.pk: pool})
        for later in (seconds // 3, seconds) if check is not None else ():
            at = BEGIN + timedelta(seconds=now + later)
            fresh = Usage.objects.get()
            check(now + later, decayed_usage(fresh, pool, at, window_starts([pool], at).get(fresh.pk)))
        now += seconds


def since(now: int, mode: dict[str, Any]) -> int:
    if mode["window"] is None:
        return 0
    if mode["tumbling_window"]:
        begin = int(BEGIN.timestamp())
        return max(0, (begin + now) // WINDOW * WINDOW - begin)
    return max(0, now - WINDOW)


@pytest.mark.shows("RAI-74", "RAI-75", "RAI-79")
@pytest.mark.parametrize("mode", sample(MODES.values(), 2), ids=MODES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.heavy)])
def test_usage_ledger_matches_the_integrated_usage_at_every_change(
    cast: Cast, mode: dict[str, Any], seed: int
) -> None:
    story = make_story(seed, least=WINDOW // STEPS)

    def check_error(now: int, usage: Any) -> None:
        begin = since(now, mode)
        used = integrated_usage(story, now, mode["half_life"], begin)
        assert usage.used[0] == pytest.approx(used, rel=1e-6, abs=1e-3)
        held = integrated_usage([(10**9, 4000.0)], now, mode["half_life"], begin)
        assert usage.parent[0] == pytest.approx(held, rel=1e-6, abs=1e-3)

    ledger_usage(cast, story, mode, check_error)


def test_usage_interpolation_error_is_less_than_one_step(cast: Cast) -> None:
    dice = Random(5)
    story = [(dice.randint(1, 4), dice.choice([0.0, 4000.0])) for _ in range(40)]
    step = WINDOW / STEPS

    def check_error(now: int, usage: Any) -> None:
        assert (
            abs(usage.used[0] - integrated_usage(story, now, None, since(now, MODES["window"])))
            <= 4000 * step
        )

    ledger_usage(cast, story, MODES["window"], check_error)


@pytest.mark.heavy
def test_unneeded_ledger_points_are_deleted(cast: Cast) -> None:
    ledger_usage(cast, [(10, 1000.0)] * 300, MODES["window"])
    assert UsagePoint.objects.count() <= STEPS + 2
    ledger_usage(cast, [(20, 1000.0)] * 20, MODES["half-life"])
    assert not UsagePoint.objects.exists()


def test_usage_before_the_window_is_discarded(stage: Stage) -> None:
    # An end-to-end test: GPUs are allocated, the scheduler settles the ledger, and the window passes.
    mode = {"half_life": None, "window": 3600, "tumbling_window": False}
    NodePool.objects.update(fairshare_mode="time_based", count_all=True, **mode)
    workload = stage.submit(roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    stage.tick(2)
    stage.clock.advance(600)
    stage.finish(workload)
    stage.tick()
    pool, row = NodePool.objects.get(), Usage.objects.get(project=stage.cast.vision)

    def used(seconds: int) -> float:
        at = row.settled_at + timedelta(seconds=seconds)
        return decayed_usage(row, pool, at, window_starts([pool], at).get(row.pk)).used[0]

    whole = used(0)
    assert whole >= 2000 * 600
    assert used(3600 - 600) == pytest.approx(whole, rel=0.01)
    assert used(3600 - 300) == pytest.approx(2000 * 300, rel=0.01)
    assert used(3600) == 0
    stage.clock.advance(3600)
    stage.tick()
    assert used(3600) == 0
