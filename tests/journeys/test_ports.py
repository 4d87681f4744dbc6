"""Ports of pods through a running Berth, also when its web process dies."""

import json
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.sync.client import connect

from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import ROOT, Installation, until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def berth() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="berth-ports-") as place:
        installation = Installation(Path(place) / "home")
        installation.start("--demo")
        yield installation
        installation.clear()


class Browser:
    """Keeps the cookie of one port, and finds every name under localhost on this machine, as browsers do."""

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self.host, self.here = parts.netloc, f"http://127.0.0.1:{parts.port}"
        self.cookie = ""
        first = self.get(parts.path)
        assert (first.status_code, first.headers["location"]) == (303, "/")
        self.cookie = first.headers["set-cookie"].partition(";")[0]

    def get(self, path: str) -> httpx.Response:
        headers = {"Host": self.host, **({"Cookie": self.cookie} if self.cookie else {})}
        return httpx.get(self.here + path, headers=headers, trust_env=False, timeout=20)

    def says(self, text: str, path: str = "/socket") -> str:
        line = socket.create_connection(("127.0.0.1", urlsplit(self.here).port or 80))
        own = f"http://{self.host}"
        headers = {"Cookie": self.cookie}
        url = f"ws://{self.host}{path}"
        with connect(url, sock=line, additional_headers=headers, origin=own, proxy=None) as opened:  # type: ignore[arg-type]
            opened.send(text)
            return str(opened.recv(20))


def assert_every_line_is_json(logs: Path) -> None:
    """Of every process but the database, also of the one that was killed."""
    told = {
        name: [json.loads(line) for line in (logs / f"{name}.log").read_text().splitlines()]
        for name in ("web", "scheduler", "tasks", "services")
    }
    assert {line["process"] for line in told["scheduler"]} == {"scheduler"}
    events = [line for lines in told.values() for line in lines]
    assert all(line["event"] and line["timestamp"] and line["level"] for line in events)


def submitted(terminal: Terminal, folder: Path) -> str:
    """The id of a desk that runs and is ready."""
    program = ROOT / "tests" / "journeys" / "a_desk.py"
    document = folder / "desk.yaml"
    document.write_text(
        f"name: desk\nkind: interactive\nports: [{{name: lab}}]\ncommand: exec python {program}\n"
        "roles: [{name: desk, gpu: 0.5, cpu: 0.1, memory_mib: 64}]\ngrace_period_seconds: 1\n"
    )
    found: str = terminal.json("submit", "-p", "vision", "-f", str(document))["id"]
    with terminal.client() as client:
        until(lambda: client.workloads.get(found).phase == "running")
        until(lambda: b"ready" in client.workloads.log(found).data)
    return found


def test_a_desk_is_opened_by_a_link_and_outlives_the_web_process_that_opened_it(
    berth: Installation, tmp_path: Path
) -> None:
    dave = sign_in(berth, "dave", tmp_path / "dave")
    submitted(dave, tmp_path)
    browser = Browser(dave.berth("open", "desk", "--print").strip())
    assert browser.get("/").text == "desk in run 1"
    assert browser.says("hello") == "you said hello"
    victim = berth.children()["web"]
    os.kill(victim, signal.SIGKILL)
    until(lambda: berth.children().get("web") not in (None, victim))

    def answers() -> bool:
        try:
            return browser.get("/").text == "desk in run 1"
        except httpx.TransportError:
            return False

    until(answers)
    assert browser.says("again") == "you said again"
    assert_every_line_is_json(berth.home / "logs")
    dave.berth("cancel", "desk")
    until(lambda: browser.get("/").status_code == 502)
