"""Test pod ports of a running installation while one of its web processes is killed."""

import json
import os
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.journeys.command import Terminal
from tests.journeys.installation import ROOT, Installation, until

pytestmark = pytest.mark.timeout(900)


class Browser:
    """A client that keeps one port's cookie and resolves names under localhost, as a browser does."""

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self.host, self.here = parts.netloc, f"http://127.0.0.1:{parts.port}"
        self.cookie = ""
        first = self.get(parts.path)
        assert (first.status_code, first.headers["location"]) == (303, "/")
        self.cookie = first.headers["set-cookie"].partition(";")[0]

    def get(self, path: str) -> httpx.Response:
        headers = {"Host": self.host, **({"Cookie": self.cookie} if self.cookie else {})}
        return httpx.get(self.here + path, headers=headers, trust_env=False, timeout=120)

    def exchange(self, text: str, path: str = "/socket") -> str:
        connection = socket.create_connection(("127.0.0.1", urlsplit(self.here).port or 80))
        origin = Origin(f"http://{self.host}")
        headers = {"Cookie": self.cookie}
        url = f"ws://{self.host}{path}"
        with connect(url, sock=connection, additional_headers=headers, origin=origin, proxy=None) as opened:
            opened.send(text)
            return str(opened.recv(180))


def assert_every_line_is_json(logs: Path) -> None:
    """Assert that every log line is JSON for all processes except the database, including the killed one."""
    records = {
        name: [json.loads(line) for line in (logs / f"{name}.log").read_text().splitlines()]
        for name in ("web", "scheduler", "tasks", "services")
    }
    assert {line["process"] for line in records["scheduler"]} == {"scheduler"}
    events = [line for lines in records.values() for line in lines]
    assert all(line["event"] and line["timestamp"] and line["level"] for line in events)


def submit_interactive(terminal: Terminal, folder: Path) -> str:
    """Submit an interactive workload, wait until it is ready, and return its ID."""
    program = ROOT / "tests" / "journeys" / "sessions" / "echo_server.py"
    document = folder / "desk.yaml"
    document.write_text(
        f"name: desk\nkind: interactive\nports: [{{name: lab}}]\ncommand: exec python {program}\n"
        "roles: [{name: desk, gpu: 0.5, cpu: 0.1, memory_mib: 64}]\ngrace_period_seconds: 1\n"
    )
    workload_id: str = terminal.json("submit", "-p", "vision", "-f", str(document))["id"]
    with terminal.client() as client:
        until(lambda: client.workloads.get(workload_id).phase == "running")
        until(lambda: b"ready" in client.workloads.log(workload_id).data)
    return workload_id


@pytest.mark.heavy
def test_port_link_opens_the_workload_and_survives_a_killed_web_process(
    shared_berth: Installation, dave_on_shared_berth: Terminal, tmp_path: Path
) -> None:
    submit_interactive(dave_on_shared_berth, tmp_path)
    browser = Browser(dave_on_shared_berth.berth("open", "desk", "--print").strip())
    assert browser.get("/").text == "desk in run 1"
    assert browser.exchange("hello") == "you said hello"
    victim = shared_berth.children()["web"]
    os.kill(victim, signal.SIGKILL)
    until(lambda: shared_berth.children().get("web") not in (None, victim))

    def answers() -> bool:
        try:
            return browser.get("/").text == "desk in run 1"
        except httpx.TransportError:
            return False

    until(answers)
    assert browser.exchange("again") == "you said again"
    assert_every_line_is_json(shared_berth.home / "logs")
    dave_on_shared_berth.berth("cancel", "desk")
    until(lambda: browser.get("/").status_code == 502)
