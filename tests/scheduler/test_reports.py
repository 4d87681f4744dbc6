"""Tests for demand reports to pools after every relevant change."""

import ast
from pathlib import Path

import pytest

from pools.models import Node
from tests.scheduler.stage import Stage

shows = pytest.mark.shows
SCHEDULER = Path(__file__).parents[2] / "scheduler"


def workers(count: int) -> list[dict[str, object]]:
    return [{"name": "worker", "replicas": count, "gpu": 1}]


def pressure(stage: Stage) -> tuple[int, int, int, int]:
    stage.cast.pool.refresh_from_db()
    pressure = stage.cast.pool.pressure or {}
    return (
        pressure["queued"] // 1000,
        pressure["running"] // 1000,
        pressure["capacity"] // 1000,
        pressure["nodes"],
    )


@shows("SKY-24")
def test_demand_is_reported_after_each_change_to_a_workload_or_node(stage: Stage) -> None:
    stage.tick()
    assert pressure(stage) == (0, 0, 4, 2)
    first = stage.submit("first", roles=workers(3))
    stage.tick(2)
    assert pressure(stage) == (0, 3, 4, 2), "a submission"
    stage.submit("second", roles=workers(2), project=stage.cast.vision)
    stage.finish(first)
    stage.tick(3)
    assert pressure(stage) == (0, 2, 4, 2), "an end, and another submission"
    node = stage.node(2)
    stage.tick()
    assert pressure(stage) == (0, 2, 6, 3), "a node that was added"
    Node.objects.filter(pk=node.pk).update(state="lost")
    stage.tick()
    assert pressure(stage) == (0, 2, 4, 2), "a node that was removed"


@shows("SKY-25")
def test_scheduler_reports_demand_without_depending_on_the_autoscaler(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None of the scheduler's modules names the autoscaler.
    heard = []

    def observer(pool_id: int, **report: object) -> bool:
        heard.append((pool_id, report))
        return False

    monkeypatch.setattr("scheduler.loop.reconcile.demand.report_pressure", observer)
    stage.tick()
    ((pool_id, report),) = heard
    assert pool_id == stage.cast.pool.pk
    assert report.keys() == {"queued", "running", "capacity", "gang_nodes", "binding", "at", "fence"}
    assert not [
        name for path in SCHEDULER.rglob("*.py") for name in imported_modules(path) if "autoscaler" in name
    ]


def imported_modules(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names
