"""Tests for disruption budgets, which limit unavailable nodes by reason and time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.errors import Invalid
from pools import budgets, services
from pools.engine.budgets import Allowance, Budget, DisruptionReason, compute_allowance
from pools.engine.reconciler import Drain, Fleet, next_step
from pools.engine.victims import LostWork
from pools.models import NodePool
from tests.pools.fleets import after_drain
from tests.pools.stage import SYSTEM, Stage, pool

EMPTY, UNDERUTILIZED = DisruptionReason
MONDAY_NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
OFFICE_HOURS = {"nodes": 0, "schedule": "0 9 * * mon-fri", "duration": "8h", "zone": "Europe/Berlin"}


def load_budgets(*documents: object) -> tuple[Budget, ...]:
    return budgets.parse_budgets(
        NodePool(name="p", disruption_budgets=budgets.normalize_budgets(list(documents)))
    )


def remaining(now: datetime, *documents: object, total: int = 20, out: int = 0) -> dict[str, int]:
    return {
        str(reason): left
        for reason, left in compute_allowance(load_budgets(*documents), total, out, now).remaining.items()
    }


def test_budget_counts_nodes_that_are_already_unavailable() -> None:
    assert remaining(MONDAY_NOON, {"nodes": 3}) == {"empty": 3, "underutilized": 3}
    assert remaining(MONDAY_NOON, {"nodes": "10%"}, total=19) == {"empty": 2, "underutilized": 2}
    assert remaining(MONDAY_NOON, {"nodes": "10%"}, total=19, out=1) == {"empty": 1, "underutilized": 1}
    assert remaining(MONDAY_NOON, {"nodes": "10%"}, out=5) == {"empty": 0, "underutilized": 0}
    assert remaining(MONDAY_NOON, {"nodes": "100%"}, total=0) == {"empty": 0, "underutilized": 0}
    assert remaining(MONDAY_NOON) == {}


def test_strictest_budget_applies_for_each_reason() -> None:
    documents = {"nodes": "50%"}, {"nodes": 2, "reasons": ["underutilized"]}
    assert remaining(MONDAY_NOON, *documents) == {"empty": 10, "underutilized": 2}
    assert remaining(MONDAY_NOON, {"nodes": 4, "reasons": ["empty"]}) == {"empty": 4}


@pytest.mark.parametrize(
    ("at", "holds"),
    [
        ("2026-06-01T06:59", False),  # 8:59 in Berlin, a Monday
        ("2026-06-01T07:00", True),
        ("2026-06-01T14:59", True),
        ("2026-06-01T15:00", False),
        ("2026-06-06T12:00", False),  # Saturday
        ("2026-12-01T07:30", False),  # 8:30 in Berlin: winter
        ("2026-12-01T08:00", True),
    ],
)
def test_budget_window_uses_its_time_zone(at: str, holds: bool) -> None:
    now = datetime.fromisoformat(at).replace(tzinfo=UTC)
    assert bool(remaining(now, OFFICE_HOURS)) is holds
    (budget,) = load_budgets(OFFICE_HOURS)
    if holds:
        assert budget.active_until(now) == now.replace(hour=15 if now.month == 6 else 16, minute=0)


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        ("10%", "disruption_budgets", "is not a list of budgets"),
        ([3], "disruption_budgets[0]", "is not a valid disruption budget"),
        ([{}], "disruption_budgets[0].nodes", "is missing"),
        ([{"nodes": "101%"}], "disruption_budgets[0].nodes", "is not a valid number of nodes"),
        ([{"nodes": -1}], "disruption_budgets[0].nodes", "is not a valid number of nodes"),
        ([{"nodes": 1.5}], "disruption_budgets[0].nodes", "is not a valid number of nodes"),
        ([{"nodes": True}], "disruption_budgets[0].nodes", "is not a valid number of nodes"),
        ([{"nodes": "٣%"}], "disruption_budgets[0].nodes", "is not a valid number of nodes"),
        ([{"nodes": 1}, {"nodes": 1, "reason": []}], "disruption_budgets[1].reason", "unknown key"),
        ([{"nodes": 1, "reasons": "empty"}], "disruption_budgets[0].reasons", "is not a list"),
        ([{"nodes": 1, "reasons": ["drifted"]}], "disruption_budgets[0].reasons[0]", "is not a valid reason"),
        ([{"nodes": 1, "reasons": [[]]}], "disruption_budgets[0].reasons[0]", "is not a valid reason"),
        ([{"nodes": 1, "duration": "8h"}], "disruption_budgets[0].schedule", "is required with duration"),
        ([{**OFFICE_HOURS, "duration": ""}], "disruption_budgets[0].duration", "is required with schedule"),
        ([{**OFFICE_HOURS, "duration": "8 h"}], "disruption_budgets[0].duration", "is not a valid duration"),
        ([{**OFFICE_HOURS, "duration": "59s"}], "disruption_budgets[0].duration", "is not a valid duration"),
        (
            [{**OFFICE_HOURS, "schedule": "9 to 5"}],
            "disruption_budgets[0].schedule",
            "has 3 fields instead of 5",
        ),
        ([{**OFFICE_HOURS, "schedule": 9}], "disruption_budgets[0].schedule", "has 0 fields instead of 5"),
        ([{**OFFICE_HOURS, "zone": "Berlin"}], "disruption_budgets[0].zone", "is not a valid time zone"),
        ([{**OFFICE_HOURS, "zone": "../UTC"}], "disruption_budgets[0].zone", "is not a valid time zone"),
        ([{"nodes": 1, "zone": "UTC"}], "disruption_budgets[0].zone", "requires schedule"),
        ([{"nodes": 1}] * 51, "disruption_budgets", "has too many entries"),
    ],
)
def test_error_names_the_invalid_budget(document: Any, path: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        budgets.normalize_budgets(document)
    problem = raised.value.problems[0]
    assert (problem.path, problem.message[: len(message)]) == (path, message)


def test_disruption_budget_is_normalized_and_described() -> None:
    stored = budgets.normalize_budgets([{"nodes": "5", "reasons": []}, OFFICE_HOURS])
    assert stored == [{"nodes": 5}, {**OFFICE_HOURS, "duration": 28800}]
    assert budgets.normalize_budgets(stored) == stored
    assert [budgets.summarize_raw_budget(budget) for budget in stored] == [
        "at most 5 nodes at a time",
        "at most 0 nodes at a time, from 0 9 * * mon-fri (Europe/Berlin) for 8h",
    ]
    (budget,) = load_budgets({"nodes": "10%", "reasons": ["empty"]})
    assert budgets.describe_budget(budget, MONDAY_NOON) == "at most 10% of the nodes at a time if empty"


def test_reconciler_drains_within_the_budget_and_terminates_empty_nodes() -> None:
    fleet = Fleet(2, frozenset(range(8)))
    busy = {n: LostWork(gpu_seconds=9, pods=1) for n in (1, 2, 3, 4)}
    step = next_step(fleet, busy, Allowance({UNDERUTILIZED: 1, EMPTY: 2}))
    assert step.commands == (Drain((7, 6)),)
    assert step.blocked == (5, 4, 3, 2)
    assert next_step(fleet, busy, Allowance({UNDERUTILIZED: 0})).commands == (Drain((7, 6, 5)),)
    assert next_step(fleet, busy, Allowance({EMPTY: 0})).commands == (Drain((4, 3, 2)),)
    assert next_step(fleet, busy, Allowance({EMPTY: 0, UNDERUTILIZED: 0})).commands == ()


UP_TO_40 = st.integers(0, 40)


@given(st.integers(1, 40), UP_TO_40, st.integers(0, 100), st.sets(UP_TO_40), st.integers(0, 9))
def test_unavailable_nodes_never_exceed_the_budget(
    total: int, desired: int, percent: int, busy: set[int], steps: int
) -> None:
    fleet = Fleet(desired, frozenset(range(total)))
    work = {ordinal: LostWork(gpu_seconds=ordinal, pods=1) for ordinal in busy}
    for _ in range(steps + 1):
        node_count = len(fleet.current | fleet.draining)
        bound = compute_allowance([Budget(percent=percent)], node_count, len(fleet.draining), MONDAY_NOON)
        step = next_step(fleet, work, bound)
        if any(isinstance(command, Drain) for command in step.commands):
            assert len(step.fleet.draining) <= -(-node_count * percent // 100)
        fleet = step.fleet
        for ordinal in sorted(fleet.draining)[:1]:
            fleet = after_drain(fleet, ordinal)


@pytest.mark.django_db
def test_disruption_budget_slows_scale_down_but_not_pool_expiry() -> None:
    stage = Stage(pool((0, 8), disruption_budgets=[{"nodes": 1}]))
    stage.resize(5)
    stage.reconcile()
    stage.resize(2)
    assert stage.reconcile()
    assert not stage.reconcile()
    assert [n for n, state in stage.states().items() if state == "draining"] == [4]
    stage.empty_drains()
    stage.reconcile()
    assert [n for n, state in stage.states().items() if state == "draining"] == [3]
    services.drain_pool(actor=SYSTEM, pool=stage.pool)
    stage.pool.refresh_from_db()
    stage.now = stage.pool.expires_at or stage.now
    stage.reconcile()
    assert set(stage.states().values()) == {"draining"}


@pytest.mark.django_db
def test_manual_drain_is_always_allowed_and_counts_toward_the_budget() -> None:
    stage = Stage(pool((0, 8), disruption_budgets=[{"nodes": 1}]))
    stage.resize(4)
    stage.reconcile()
    services.drain_node(actor=SYSTEM, node=stage.node(1))
    services.drain_node(actor=SYSTEM, node=stage.node(2))
    stage.resize(1)
    stage.reconcile()
    assert stage.states() == {0: "ready", 1: "draining", 2: "draining", 3: "ready"}
    stage.pass_time(timedelta(hours=1).total_seconds())
    stage.empty_drains()
    stage.reconcile()
    assert stage.states() == {0: "ready", 3: "draining"}
