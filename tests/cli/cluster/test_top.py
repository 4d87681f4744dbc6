"""Tests for `berth top --service`."""

import json
from typing import Any

import httpx
import pytest
from textual.widgets import DataTable, Static

from berth.cli.top.app import ServiceTop
from berth.cli.top.panels import format_summary
from berth.cli.top.service import ServiceAddress, ServiceSnapshot, ServiceWatcher, parse_service_address
from berth.client import Settings
from berth.client.config import InvalidSettings
from tests.cli.terminal import Terminal
from tests.client.stub_server import HERE, StubServer, page, problem, workload

STATUS: dict[str, Any] = {
    "enabled": True, "running": True, "current_engines": 4, "min_engines": 2, "max_engines": 16,
    "last_scale_time": 1709827200.0, "last_scale_action": "scale_out",
    "last_decision": {"action": "scale_out", "delta": 2, "reason": "Conditions met: queue_backlog"},
    "pending_requests": ["550e8400"],
    "recent_metrics": {"reporting_engines": 3, "avg_token_usage": 0.92, "total_queue_reqs": 45},
}  # fmt: skip
CONDITIONS = {
    "conditions": {
        "queue_backlog": {"type": "scale_out", "triggered": True, "met": True, "value": 45, "threshold": 40,
                          "held_secs": 20, "duration_secs": 20},
        "ttft_high": {"type": "scale_out", "triggered": False, "met": None, "value": None, "threshold": 10},
        "no_queue": {"type": "scale_in", "triggered": False, "met": False, "value": 45, "threshold": 0},
    },
    "metrics": {},
}  # fmt: skip
ENGINES = {
    "models": {"default": {"engines": [
        {"engine_id": "engine_0", "url": "http://10.0.0.1:30000", "status": "ACTIVE", "is_healthy": True,
         "origin": "initial", "weight_version": "7", "running_requests": 3},
        {"engine_id": "engine_1", "url": "", "status": "CREATING", "is_healthy": False, "origin": "managed"},
    ]}},
    "total_engines": 2,
}  # fmt: skip
HISTORY = {"history": [{
    "request_id": "550e8400", "action": "scale_out", "status": "ACTIVE", "triggered_at": 1709827200.0,
    "completed_at": 1709827230.0, "from_engines": 2, "to_engines": 4, "delta": 2, "error_message": None,
    "reason": "Conditions met: \x1b[31mqueue_backlog", "triggered_conditions": ["queue_backlog"],
}], "total_count": 1, "action_filter": None, "limit": 20}  # fmt: skip
RESPONSES = {"status": STATUS, "conditions": CONDITIONS, "engines": ENGINES, "scale_history": HISTORY}


def build_server(changes: dict[str, Any] | None = None) -> StubServer:
    def reply(request: httpx.Request) -> httpx.Response:
        last = request.url.path.rpartition("/")[2]
        return httpx.Response(200, json={**RESPONSES, **(changes or {})}[last])

    return StubServer(reply)


def build_watcher(server: StubServer, address: ServiceAddress | None = None) -> ServiceWatcher:
    return ServiceWatcher(address or ServiceAddress("chat"), HERE, transport=server.transport)


def rows(app: ServiceTop, name: str) -> list[list[str]]:
    table = app.query_one(f"#{name}", DataTable)
    return [[str(cell) for cell in table.get_row_at(place)] for place in range(table.row_count)]


@pytest.mark.shows("RLX-100")
async def test_top_fills_all_panels_and_quits_on_q() -> None:
    server = build_server()
    app = ServiceTop(build_watcher(server).fetch_snapshot, title="chat", every=3600)
    async with app.run_test(size=(140, 50)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        status = str(app.query_one("#status", Static).render())
        assert "autoscaler on, running" in status
        assert "engines    4, allowed 2 to 16" in status
        assert "decided    scale_out 2: Conditions met: queue_backlog" in status
        assert "0.92" in str(app.query_one("#metrics", Static).render())
        assert rows(app, "conditions")[0] == ["queue_backlog", "out", "45", "40", "20s of 20s", "MET"]
        assert [row[-1] for row in rows(app, "conditions")] == ["MET", "unknown", "no"]
        assert rows(app, "engines")[0][:6] == ["engine_0", "ACTIVE", "yes", "initial", "3", "7"]
        assert rows(app, "history")[0][1:5] == ["scale_out", "2 to 4", "ACTIVE", "30s"]
        await pilot.press("q")
    assert not app.is_running
    assert server.calls == [
        "GET /api/v1/services/chat/autoscaler/status", "GET /api/v1/services/chat/autoscaler/conditions",
        "GET /api/v1/services/chat/engines", "GET /api/v1/services/chat/autoscaler/scale_history?limit=20",
    ]  # fmt: skip


@pytest.mark.shows("RLX-100")
async def test_r_key_refreshes_immediately() -> None:
    server = build_server()
    app = ServiceTop(build_watcher(server).fetch_snapshot, title="chat", every=3600)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        assert len(server.calls) == 4
        await pilot.press("r")
        await app.workers.wait_for_complete()
        assert len(server.calls) == 8


async def test_unreachable_server_is_reported_above_the_last_known_data() -> None:
    replies: list[httpx.Response | Exception] = []

    def fetch_snapshot() -> ServiceSnapshot:
        return build_watcher(StubServer(*replies) if replies else build_server()).fetch_snapshot()

    app = ServiceTop(fetch_snapshot, title="chat", every=3600)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        replies.append(httpx.ConnectError("no route"))
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "cannot reach http://127.0.0.1:8000" in str(app.query_one("#error", Static).render())
        assert len(rows(app, "engines")) == 2
        replies.clear()
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert str(app.query_one("#error", Static).render()) == ""


def test_control_sequences_in_server_data_are_escaped() -> None:
    text = format_summary(build_watcher(build_server()).fetch_snapshot())
    assert "\x1b" not in text
    assert "queue_backlog" in text


def test_missing_values_are_shown_as_dashes() -> None:
    bare: dict[str, Any] = {"enabled": False, "running": False, "last_decision": None, "recent_metrics": {}}
    server = build_server({"status": bare, "conditions": {}, "engines": {}, "scale_history": {}})
    text = format_summary(build_watcher(server).fetch_snapshot())
    assert "autoscaler off, not running" in text
    assert "token usage -" in text


@pytest.mark.shows("RLX-100")
@pytest.mark.parametrize(
    ("service", "url", "expected"),
    [
        ("chat", "", ServiceAddress("chat")),
        ("chat", "http://berth:8000", ServiceAddress("chat", "http://berth:8000")),
        (
            "",
            "http://berth:8000/api/v1/services/chat/autoscaler",
            ServiceAddress("chat", "http://berth:8000"),
        ),
        ("chat", "https://berth/api/v1/services/chat/", ServiceAddress("chat", "https://berth")),
        ("", "https://gate/berth/api/v1/services/chat", ServiceAddress("chat", "https://gate/berth")),
    ],
)
def test_service_can_be_specified_as_a_url(service: str, url: str, expected: ServiceAddress) -> None:
    assert parse_service_address(service, url) == expected


@pytest.mark.parametrize(
    ("service", "url"), [("", ""), ("", "http://berth:8000"), ("chat", "berth:8000"), ("chat", "ftp://berth"),
                         ("talk", "http://berth/api/v1/services/chat/autoscaler")]
)  # fmt: skip
def test_missing_or_conflicting_service_is_rejected(service: str, url: str) -> None:
    with pytest.raises(InvalidSettings):
        parse_service_address(service, url)


def test_token_is_not_sent_to_another_server(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    from berth.client.config import Contexts, settings_path, write_contexts

    stored = Settings("http://berth:8000", "berth_secret")
    write_contexts(settings_path(), Contexts("berth", {"berth": stored}))
    elsewhere = ServiceAddress("chat", "http://other:8000")
    with ServiceWatcher(ServiceAddress("chat")) as ours, ServiceWatcher(elsewhere) as other:
        assert (ours.settings.token, other.settings.token) == ("berth_secret", "")


def test_workload_handle_is_resolved_once() -> None:
    service = workload("chat", "vision", kind="service")

    def reply(request: httpx.Request) -> httpx.Response:
        last = request.url.path.rpartition("/")[2]
        if last == "workloads":
            return page([service])
        return httpx.Response(200, json=RESPONSES.get(last, service))

    server = StubServer(reply)
    watching = build_watcher(server, ServiceAddress("vision/chat"))
    watching.fetch_snapshot()
    watching.fetch_snapshot()
    assert [request.partition("?")[0] for request in server.calls].count("GET /api/v1/workloads") == 1
    assert server.calls[-1].startswith(f"GET /api/v1/services/{service['id']}/autoscaler/scale_history")


def test_unknown_service_prints_a_one_line_error(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    server = StubServer(problem(404, detail="There is no service chat.", code="not-found"))
    monkeypatch.setattr("berth.cli.top.service._transport", server.transport)
    done = terminal.run("top", "--service", "chat")
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr.startswith("berth: There is no service chat.")


@pytest.mark.shows("RLX-100")
def test_once_option_prints_the_panels_and_exits(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.cli.top.service._transport", build_server().transport)
    done = terminal.run("top", "--service", "chat", "--once")
    assert done.exit_code == 0, done.output
    assert "queue_backlog  out  45  40  20s of 20s  MET" in done.stdout
    assert json.dumps(STATUS["pending_requests"][0]).strip('"') in done.stdout
