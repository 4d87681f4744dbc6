"""Usage and budgets at the command line."""

import json
from typing import Any

import httpx

from tests.cli.desk_of_commands import Terminal
from tests.client.desk import Desk, page, problem

NOTHING = {"department": None, "project": None, "user": None, "pool": None}
DAY_ONE = {**NOTHING, "at": "2026-06-01T00:00:00Z", "project": "vision", "gpu_hours": 12.5, "cpu_hours": 3.0,
           "memory_gib_hours": 1.0, "cost": 25.0}  # fmt: skip
DAY_TWO = {**DAY_ONE, "at": "2026-06-02T00:00:00Z", "gpu_hours": 7.5, "cost": 15.0}
TOTAL = {**NOTHING, "at": None, "gpu_hours": 20.0, "cpu_hours": 6.0, "memory_gib_hours": 2.0, "cost": 40.0}


def report(items: list[dict[str, Any]], following: str | None = None) -> httpx.Response:
    told = {"since": "2026-06-01T00:00:00Z", "until": "2026-06-03T00:00:00Z", "total": TOTAL}
    return httpx.Response(200, json={**told, "items": items, "next": following})


def budget(version: int = 1, **values: Any) -> httpx.Response:
    month = {"begin": "2026-06-01T00:00:00Z", "end": "2026-07-01T00:00:00Z", "used": 50.0, "percent": 50.0,
             "pace_per_hour": 0.1, "forecast": 120.0, "forecast_percent": 120.0}  # fmt: skip
    told = {"owner": {"kind": "project", "name": "vision"}, "gpu_hours": 100, "warn_at": [80, 100],
            "version": version, "month": month, **values}  # fmt: skip
    return httpx.Response(200, json=told, headers={"ETag": f'"{version}"'})


def test_a_report_is_read_to_its_last_page_and_added_up(monkeypatch) -> None:
    desk = Desk(report([DAY_ONE], "abc"), report([DAY_TWO]))
    told = Terminal(monkeypatch).run("usage", "report", "--by", "project", "--step", "day", desk=desk)
    assert told.exit_code == 0, told.output
    assert [line.split() for line in told.output.splitlines()][:3] == [
        ["DAY", "PROJECT", "GPU-HOURS", "CPU-HOURS", "COST"],
        ["2026-06-01", "vision", "12.50", "3.0", "25.00"],
        ["2026-06-02", "vision", "7.50", "3.0", "15.00"],
    ]
    assert "Total: 20 GPU-hours, cost 40.00" in told.output
    assert "by=project" in desk.asked[0] and "cursor=abc" in desk.asked[1]


def test_a_report_as_json_holds_what_the_server_said(monkeypatch) -> None:
    told = Terminal(monkeypatch).run("usage", "report", "-o", "json", desk=Desk(report([DAY_ONE])))
    assert json.loads(told.output)["items"] == [DAY_ONE]


def test_an_unknown_dimension_is_refused_before_anything_is_asked(monkeypatch) -> None:
    told = Terminal(monkeypatch).run("usage", "report", "--by", "node")
    assert told.exit_code == 2
    assert (
        "--by: is not a list of dimensions; received 'node';"
        " allowed: a comma-separated list of department, project, user, pool" in told.output
    )


def test_a_first_budget_is_created_and_a_second_value_changes_it(monkeypatch) -> None:
    desk = Desk(problem(404, code="not-found", detail="There is no such budget."), budget())
    told = Terminal(monkeypatch).run("budget", "set", "vision", "100", desk=desk)
    assert told.exit_code == 0, told.output
    assert desk.requests[1].headers["If-None-Match"] == "*"
    assert "120" in told.output
    desk = Desk(budget(), budget(), budget(2))
    Terminal(monkeypatch).run("budget", "set", "vision", "--warn-at", "50,90", desk=desk)
    assert desk.requests[2].headers["If-Match"] == '"1"'
    assert json.loads(desk.requests[2].content) == {"gpu_hours": 100, "warn_at": [50, 90]}


def test_a_budget_without_anything_to_set_is_refused(monkeypatch) -> None:
    told = Terminal(monkeypatch).run("budget", "set", "vision")
    assert (told.exit_code, "name GPU-HOURS or" in told.output) == (2, True)


def test_budgets_are_listed(monkeypatch) -> None:
    told = Terminal(monkeypatch).run("budget", "list", desk=Desk(page([budget().json()])))
    assert ["vision", "project", "100", "50.0", "50", "120.0", "120"] in [
        line.split() for line in told.output.splitlines()
    ]
