"""`berth top --service` shows what an autoscaler sees, decides and did; q leaves it, r looks again."""

import json
from typing import Any

import httpx
import pytest
from textual.widgets import DataTable, Static

from berth.cli.top.app import Top
from berth.cli.top.panels import summary
from berth.cli.top.service import ServiceAddress, ServiceSnapshot, ServiceWatcher, watched
from berth.client import Settings
from berth.client.config import BadSettings
from tests.cli.desk_of_commands import Terminal
from tests.client.desk import HERE, Desk, page, problem, workload

STATUS = {
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
ANSWERS = {"status": STATUS, "conditions": CONDITIONS, "engines": ENGINES, "scale_history": HISTORY}


def answering(changes: dict[str, Any] | None = None) -> Desk:
    def reply(request: httpx.Request) -> httpx.Response:
        last = request.url.path.rpartition("/")[2]
        return httpx.Response(200, json={**ANSWERS, **(changes or {})}[last])

    return Desk(reply)


def eye(desk: Desk, what: ServiceAddress | None = None) -> ServiceWatcher:
    return ServiceWatcher(what or ServiceAddress("chat"), HERE, transport=desk.transport)


def rows(app: Top, name: str) -> list[list[str]]:
    table = app.query_one(f"#{name}", DataTable)
    return [[str(cell) for cell in table.get_row_at(place)] for place in range(table.row_count)]


@pytest.mark.shows("RLX-100")
async def test_all_panels_are_filled_and_q_leaves() -> None:
    desk = answering()
    app = Top(eye(desk).look, title="chat", every=3600)
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
    assert desk.asked == [
        "GET /api/v1/services/chat/autoscaler/status", "GET /api/v1/services/chat/autoscaler/conditions",
        "GET /api/v1/services/chat/engines", "GET /api/v1/services/chat/autoscaler/scale_history?limit=20",
    ]  # fmt: skip


@pytest.mark.shows("RLX-100")
async def test_r_looks_again_at_once() -> None:
    desk = answering()
    app = Top(eye(desk).look, title="chat", every=3600)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        assert len(desk.asked) == 4
        await pilot.press("r")
        await app.workers.wait_for_complete()
        assert len(desk.asked) == 8


async def test_a_server_that_goes_away_is_said_and_the_last_answers_stay() -> None:
    told: list[httpx.Response | Exception] = []

    def look() -> ServiceSnapshot:
        return eye(Desk(*told) if told else answering()).look()

    app = Top(look, title="chat", every=3600)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        told.append(httpx.ConnectError("no route"))
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "cannot reach http://127.0.0.1:8000" in str(app.query_one("#trouble", Static).render())
        assert len(rows(app, "engines")) == 2
        told.clear()
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert str(app.query_one("#trouble", Static).render()) == ""


def test_what_strangers_wrote_gives_the_terminal_no_orders() -> None:
    text = summary(eye(answering()).look())
    assert "\x1b" not in text
    assert "queue_backlog" in text


def test_a_service_that_says_little_is_shown_with_dashes() -> None:
    bare = {"enabled": False, "running": False, "last_decision": None, "recent_metrics": {}}
    desk = answering({"status": bare, "conditions": {}, "engines": {}, "scale_history": {}})
    text = summary(eye(desk).look())
    assert "autoscaler off, not running" in text
    assert "token usage -" in text


@pytest.mark.shows("RLX-100")
@pytest.mark.parametrize(
    ("service", "url", "what"),
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
def test_an_address_may_name_the_service(service: str, url: str, what: ServiceAddress) -> None:
    assert watched(service, url) == what


@pytest.mark.parametrize(
    ("service", "url"), [("", ""), ("", "http://berth:8000"), ("chat", "berth:8000"), ("chat", "ftp://berth"),
                         ("talk", "http://berth/api/v1/services/chat/autoscaler")]
)  # fmt: skip
def test_without_one_service_there_is_nothing_to_watch(service: str, url: str) -> None:
    with pytest.raises(BadSettings):
        watched(service, url)


def test_a_token_is_not_shown_to_another_server(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    from berth.client.config import Contexts, settings_path, write_contexts

    stored = Settings("http://berth:8000", "berth_secret")
    write_contexts(settings_path(), Contexts("berth", {"berth": stored}))
    elsewhere = ServiceAddress("chat", "http://other:8000")
    with ServiceWatcher(ServiceAddress("chat")) as ours, ServiceWatcher(elsewhere) as other:
        assert (ours.settings.token, other.settings.token) == ("berth_secret", "")


def test_a_handle_is_looked_up_once() -> None:
    found = workload("chat", "vision", kind="service")

    def reply(request: httpx.Request) -> httpx.Response:
        last = request.url.path.rpartition("/")[2]
        if last == "workloads":
            return page([found])
        return httpx.Response(200, json=ANSWERS.get(last, found))

    desk = Desk(reply)
    watching = eye(desk, ServiceAddress("vision/chat"))
    watching.look()
    watching.look()
    assert [asked.partition("?")[0] for asked in desk.asked].count("GET /api/v1/workloads") == 1
    assert desk.asked[-1].startswith(f"GET /api/v1/services/{found['id']}/autoscaler/scale_history")


def test_what_cannot_be_seen_is_told_in_one_line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(problem(404, detail="There is no service chat.", code="not-found"))
    monkeypatch.setattr("berth.cli.top.service._transport", desk.transport)
    done = terminal.run("top", "--service", "chat")
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr.startswith("berth: There is no service chat.")


@pytest.mark.shows("RLX-100")
def test_where_there_is_no_screen_it_is_printed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.cli.top.service._transport", answering().transport)
    done = terminal.run("top", "--service", "chat", "--once")
    assert done.exit_code == 0, done.output
    assert "queue_backlog  out  45  40  20s of 20s  MET" in done.stdout
    assert json.dumps(STATUS["pending_requests"][0]).strip('"') in done.stdout
