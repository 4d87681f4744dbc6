"""Tests for `berth usage` and `berth budget`."""

import json
from typing import Any

import httpx
import pytest

from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer, page, problem

EMPTY_REPORT = {"department": None, "project": None, "user": None, "pool": None}
DAY_ONE = {
    **EMPTY_REPORT,
    "at": "2026-06-01T00:00:00Z",
    "project": "vision",
    "gpu_hours": 12.5,
    "cpu_hours": 3.0,
    "memory_gib_hours": 1.0,
    "cost": 25.0,
}
DAY_TWO = {**DAY_ONE, "at": "2026-06-02T00:00:00Z", "gpu_hours": 7.5, "cost": 15.0}
TOTAL = {
    **EMPTY_REPORT,
    "at": None,
    "gpu_hours": 20.0,
    "cpu_hours": 6.0,
    "memory_gib_hours": 2.0,
    "cost": 40.0,
}


def report(items: list[dict[str, Any]], following: str | None = None) -> httpx.Response:
    fields = {"since": "2026-06-01T00:00:00Z", "until": "2026-06-03T00:00:00Z", "total": TOTAL}
    return httpx.Response(200, json={**fields, "items": items, "next": following})


def budget(version: int = 1, **values: Any) -> httpx.Response:
    month = {"begin": "2026-06-01T00:00:00Z", "end": "2026-07-01T00:00:00Z", "used": 50.0, "percent": 50.0,
             "pace_per_hour": 0.1, "forecast": 120.0, "forecast_percent": 120.0}  # fmt: skip
    fields = {"owner": {"kind": "project", "name": "vision"}, "gpu_hours": 100, "warn_at": [80, 100],
            "version": version, "month": month, **values}  # fmt: skip
    return httpx.Response(200, json=fields, headers={"ETag": f'"{version}"'})


def test_usage_report_reads_every_page_and_prints_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    server = StubServer(report([DAY_ONE], "abc"), report([DAY_TWO]))
    result = Terminal(monkeypatch).run("usage", "report", "--by", "project", "--step", "day", server=server)
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.output.splitlines()][:3] == [
        ["DAY", "PROJECT", "GPU-HOURS", "CPU-HOURS", "COST"],
        ["2026-06-01", "vision", "12.50", "3.0", "25.00"],
        ["2026-06-02", "vision", "7.50", "3.0", "15.00"],
    ]
    assert "Total: 20 GPU-hours, cost 40.00" in result.output
    assert "by=project" in server.calls[0] and "cursor=abc" in server.calls[1]


def test_json_usage_report_equals_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Terminal(monkeypatch).run("usage", "report", "-o", "json", server=StubServer(report([DAY_ONE])))
    assert json.loads(result.output)["items"] == [DAY_ONE]


def test_unknown_dimension_is_rejected_before_sending_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Terminal(monkeypatch).run("usage", "report", "--by", "node")
    assert result.exit_code == 2
    assert (
        "--by: is not a valid list of dimensions; received 'node';"
        " allowed: a comma-separated list of department, project, user, pool" in result.output
    )


def test_budget_set_command_creates_a_budget_and_later_edits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = StubServer(problem(404, code="not-found", detail="There is no such budget."), budget())
    result = Terminal(monkeypatch).run("budget", "set", "vision", "100", server=server)
    assert result.exit_code == 0, result.output
    assert server.requests[1].headers["If-None-Match"] == "*"
    assert "120" in result.output
    server = StubServer(budget(), budget(), budget(2))
    Terminal(monkeypatch).run("budget", "set", "vision", "--warn-at", "50,90", server=server)
    assert server.requests[2].headers["If-Match"] == '"1"'
    assert json.loads(server.requests[2].content) == {"gpu_hours": 100, "warn_at": [50, 90]}


def test_budget_set_command_requires_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Terminal(monkeypatch).run("budget", "set", "vision")
    assert (result.exit_code, "specify GPU-HOURS or" in result.output) == (2, True)


def test_budget_list_shows_budget_usage_and_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Terminal(monkeypatch).run("budget", "list", server=StubServer(page([budget().json()])))
    assert ["vision", "project", "100", "50.0", "50", "120.0", "120"] in [
        line.split() for line in result.output.splitlines()
    ]


@pytest.mark.parametrize("words", ["budget set vision -5", "pool scale local -2"])
def test_negative_number_is_rejected_with_an_explanation(terminal: Terminal, words: str) -> None:
    rejected = terminal.run(*words.split(), server=StubServer())
    assert rejected.exit_code == 2
    number = words.rsplit(maxsplit=1)[-1]
    assert rejected.stderr == f"berth: {number} is negative. Use a positive number.\n"
