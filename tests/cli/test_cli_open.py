"""Claims about `berth open`."""

import webbrowser

import httpx
import pytest

from tests.cli.desk_of_commands import Terminal
from tests.client.desk import Desk, page, problem, workload

LINK = {"url": "https://x-lab.apps.example.org/.berth/open/secret", "expires_at": "2026-06-01T00:00:00Z"}


def desk(**spec: object) -> Desk:
    found = workload("desk", spec={"name": "desk", **spec})
    return Desk(page([found]), httpx.Response(200, json=found), httpx.Response(201, json=LINK))


def test_the_first_port_opens_in_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(seen.append(url)) or True)
    asked = desk(ports=[{"name": "lab"}, {"name": "board"}])
    told = Terminal(monkeypatch).run("open", "desk", desk=asked)
    assert told.exit_code == 0, told.output
    assert (seen, told.output) == ([LINK["url"]], "")
    assert asked.asked[-1].endswith("/ports/lab/link")


def test_where_there_is_no_browser_the_link_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    told = Terminal(monkeypatch).run("open", "desk", desk=desk(ports=[{"name": "lab"}]))
    assert told.output.strip() == LINK["url"]


def test_it_can_be_asked_for_and_another_port_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("nothing was to be opened"))
    asked = desk(ports=[{"name": "lab"}, {"name": "board"}])
    told = Terminal(monkeypatch).run("open", "desk", "--port", "board", "--print", desk=asked)
    assert told.output.strip() == LINK["url"]
    assert asked.asked[-1].endswith("/ports/board/link")


def test_what_cannot_be_opened_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    none = Terminal(monkeypatch).run("open", "desk", desk=desk())
    assert none.exit_code == 2
    assert "declares no ports" in none.stderr
    found = workload("desk", spec={"ports": [{"name": "lab"}]})
    told = "desk is pending: its ports can only be opened while it is running."
    refusal = problem(409, detail=told, code="conflict")
    asked = Desk(page([found]), httpx.Response(200, json=found), refusal)
    refused = Terminal(monkeypatch).run("open", "desk", desk=asked)
    assert refused.exit_code != 0
    assert "while it is running" in refused.stderr
