"""Web process and scheduler process of a benchmark."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.setup.cpu_time import own_seconds, tree_seconds
from berth.server.up.address import bind_socket, socket_url, wait_until_ready

ROOT = Path(__file__).parents[3]
PATIENCE = 900.0  # patience in seconds
UNLIMITED = "1000000000"
SETTINGS = {
    "BERTH_FAKE_POOLS": "benchmarks.setup.timed_pods",
    "BERTH_RATE_READ": UNLIMITED,
    "BERTH_RATE_WRITE": UNLIMITED,
    "BERTH_MEASURE_SECONDS": "0",
    "BERTH_METRICS_SECONDS": "0",
    "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(slots=True)
class ServerProcesses:
    """Web process and scheduler process that share a database."""

    address: str
    web: psutil.Process
    loop: psutil.Process
    database: psutil.Process | None
    report_file: Path

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU seconds that each process has used. The calling process is the load generator."""
        database = {} if self.database is None else {"database": tree_seconds(self.database)}
        processes = {"web": own_seconds(self.web), "loop": own_seconds(self.loop)}
        return {**processes, **database, "generator": time.process_time()}

    def take_report(self) -> dict[str, Any]:
        """Return the scheduler's report on the time since the last call. See `loop_process`."""
        self.report_file.unlink(missing_ok=True)
        self.loop.send_signal(signal.SIGUSR1)
        wait_until(self.report_file.exists, "the scheduler process wrote no report")
        report: dict[str, Any] = json.loads(self.report_file.read_text())
        return report

    def are_running(self) -> bool:
        """Return True, or raise AssertionError if a process has ended."""
        for name, process in (("web", self.web), ("scheduler", self.loop)):
            ended = not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
            assert not ended, f"the {name} process has ended"
        return True

    def end_running_pods(self) -> None:
        """End all running pods within a second."""
        self.loop.send_signal(signal.SIGUSR2)

    def client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.address, headers=headers, timeout=120, trust_env=False)


@contextlib.contextmanager
def server_processes(settings: Mapping[str, str]) -> Iterator[ServerProcesses]:
    """Run a web process and a scheduler process for the block. `settings` extend their environment."""
    env = {**os.environ, **SETTINGS, **settings}
    with tempfile.TemporaryDirectory(prefix="berth-bench-loop-") as place, contextlib.ExitStack() as stack:
        listening = stack.enter_context(bind_socket("127.0.0.1", 0))
        number, report = listening.fileno(), Path(place) / "report.json"
        env.setdefault("BERTH_HOME", place)
        web = _start(stack, ["berth.server.up.serve", "--fd", str(number)], env, (number,))
        loop = _start(stack, ["benchmarks.setup.processes.loop_process", str(report)], env)
        address = socket_url(listening)
        assert wait_until_ready(address, should_continue=web.is_running), "the web process did not start"
        yield ServerProcesses(address, web, loop, _database(), report)


def wait_until(probe: Callable[[], object], problem: str) -> None:
    """Poll `probe` until it returns a true value. Raises AssertionError at the timeout."""
    deadline = time.monotonic() + PATIENCE
    while not probe():
        assert time.monotonic() < deadline, problem
        time.sleep(0.2)


def _start(
    stack: contextlib.ExitStack, command: list[str], env: Mapping[str, str], fds: tuple[int, ...] = ()
) -> psutil.Process:
    process = subprocess.Popen([sys.executable, "-m", *command], env=dict(env), cwd=ROOT, pass_fds=fds)
    stack.callback(_stop, process)
    return psutil.Process(process.pid)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _database() -> psutil.Process | None:
    """Return the database server process, or None if it does not run on this machine."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = cursor.fetchone()[0]
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(backend).parent()
        return process if process is not None and "postgres" in process.name() else None
    return None
