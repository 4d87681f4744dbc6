"""Tests for `berth open`."""

import webbrowser

import httpx
import pytest

from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer, page, problem, workload

LINK = {"url": "https://x-lab.apps.example.org/.berth/open/secret", "expires_at": "2026-06-01T00:00:00Z"}


def link_server(**spec: object) -> StubServer:
    opened = workload("desk", spec={"name": "desk", **spec})
    return StubServer(page([opened]), httpx.Response(200, json=opened), httpx.Response(201, json=LINK))


def test_open_command_opens_the_first_port_in_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_page(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", open_page)
    server = link_server(ports=[{"name": "lab"}, {"name": "board"}])
    result = Terminal(monkeypatch).run("open", "desk", server=server)
    assert result.exit_code == 0, result.output
    assert (opened, result.output) == ([LINK["url"]], "")
    assert server.calls[-1].endswith("/ports/lab/link")


def test_link_is_printed_if_there_is_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    result = Terminal(monkeypatch).run("open", "desk", server=link_server(ports=[{"name": "lab"}]))
    assert result.output.strip() == LINK["url"]


def test_print_option_prints_the_link_to_the_named_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("no browser was expected"))
    server = link_server(ports=[{"name": "lab"}, {"name": "board"}])
    result = Terminal(monkeypatch).run("open", "desk", "--port", "board", "--print", server=server)
    assert result.output.strip() == LINK["url"]
    assert server.calls[-1].endswith("/ports/board/link")


def test_port_that_cannot_be_opened_prints_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    none = Terminal(monkeypatch).run("open", "desk", server=link_server())
    assert none.exit_code == 2
    assert "declares no ports" in none.stderr
    pending = workload("desk", spec={"ports": [{"name": "lab"}]})
    detail = "desk is pending. Ports can only be opened while the workload is running."
    rejection = problem(409, detail=detail, code="conflict")
    server = StubServer(page([pending]), httpx.Response(200, json=pending), rejection)
    rejected = Terminal(monkeypatch).run("open", "desk", server=server)
    assert rejected.exit_code != 0
    assert "while the workload is running" in rejected.stderr
