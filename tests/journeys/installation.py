"""A Berth installation with its own port and home directory, started as a user would start it."""

import http.cookiejar
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
BERTH_VARIABLES = ("BERTH_", "DATABASE_")
PATIENCE = 180.0  # time limit in seconds; a machine under load starts slowly
T = TypeVar("T")


def until(probe: Callable[[], T | None], seconds: float = PATIENCE, details: Callable[[], object] = str) -> T:
    """Return the first truthy result of `probe`. Fail with `details()` after `seconds`.

    The pauses grow over time, because a probe every 20 ms would keep a core busy for minutes.
    """
    started = time.monotonic()
    while not (result := probe()):
        waited = time.monotonic() - started
        assert waited < seconds, f"{probe} returned nothing in {seconds} s {details()}"
        time.sleep(min(0.02 + waited / 20, 0.5))
    return result


@dataclass
class Installation:
    home: Path
    port: int = 0
    output: str = ""
    process: subprocess.Popen[str] | None = None
    module: str = "berth.server.up"
    names: dict[str, str] = field(
        default_factory=lambda: {
            "database": "bin/postgres",
            "preload": "berth.server.up.preload",
            "web": "berth: web ",
            "scheduler": "berth: scheduler",
            "tasks": "berth: tasks",
            "services": "berth: services",
        }
    )
    settings: dict[str, str] = field(default_factory=dict)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def running(self) -> str:
        """Return the address. Start Berth if it is not running."""
        if self.is_running():
            return f"http://127.0.0.1:{self.port}"
        return self.start()

    def start(self, *options: str) -> str:
        """Start Berth and return the address that it prints."""
        self.port = self.port or free_port()
        log = (self.home.parent / "up.out").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, "--port", str(self.port), *options],
            env=self.env(),
            cwd="/",
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )

        def printed_address() -> re.Match[str] | None:
            log.seek(0)
            self.output = log.read()
            assert self.process
            assert self.process.poll() is None, self.output
            return re.search(r"http://\S+", self.output) if "Ctrl-C" in self.output else None

        return until(printed_address).group()

    def env(self) -> dict[str, str]:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(BERTH_VARIABLES)}
        own = {"BERTH_HOME": str(self.home), "BERTH_DECLARED_GPUS": "8", "PYTHONPATH": paths}
        return {**inherited, **own, **self.settings}

    def children(self) -> dict[str, int]:
        assert self.process
        pids: dict[str, int] = {}
        for pid in child_pids(self.process.pid):
            command = command_line(pid)
            pids |= {name: pid for name, part in self.names.items() if part in command}
        return pids

    def processes(self) -> dict[int, str]:
        """Return the command lines of this installation's processes by process ID."""
        mark = os.fsencode(self.home)
        commands: dict[int, str] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes() or mark in (entry / "cmdline").read_bytes():
                    commands[int(entry.name)] = command_line(int(entry.name))
            except OSError:
                continue
        return commands

    def end(self, number: int = signal.SIGINT) -> int:
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def clear(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        until(lambda: not self.processes())


InstallContext = Callable[..., AbstractContextManager[Installation]]


@contextmanager
def empty_installation(port: int = 0, *options: str, **settings: str) -> Iterator[Installation]:
    """Start Berth for the first time, without the demo organization."""
    with tempfile.TemporaryDirectory(prefix="berth-journey-") as place:
        berth = Installation(Path(place) / "home", port, settings=settings)
        try:
            berth.start(*options)
            yield berth
        finally:
            berth.clear()


class Visitor:
    """An HTTP client that keeps cookies, as a browser does."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def get(self, path: str) -> tuple[int, str]:
        return self._open(urllib.request.Request(self.address + path))

    def sign_in(self, name: str, password: str) -> tuple[int, str]:
        self.get("/login")
        token = next(cookie.value for cookie in self.cookies if cookie.name == "csrftoken")
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token, "next": "/admin/"}
        body = urllib.parse.urlencode(form).encode()
        return self._open(urllib.request.Request(self.address + "/login", body))

    def _open(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with self.opener.open(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


def child_pids(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
