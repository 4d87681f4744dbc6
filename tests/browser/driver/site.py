"""A web server in its own process, on a free port."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from berth.server.front.server import KEEP_ALIVE_SECONDS

ROOT = Path(__file__).resolve().parents[3]
PROBE_TIMEOUT_SECONDS = 180.0


@contextlib.contextmanager
def serving(database_url: str, home: Path) -> Iterator[str]:
    """Run a web server on this database with this process's secret key, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening, (home / "web.log").open("wb") as log:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "berth.server.asgi:application",
            "--fd",
            str(listening.fileno()),
            "--lifespan",
            "off",
            "--timeout-keep-alive",
            str(KEEP_ALIVE_SECONDS),
            "--log-level",
            "warning",
            "--app-dir",
            str(ROOT / "platform"),
        ]
        environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "BERTH_SECRET_KEY": settings.SECRET_KEY,
            "BERTH_HOME": str(home),
            "BERTH_APPS_ORIGIN": f"http://*.localhost:{listening.getsockname()[1]}",
            "BERTH_FAKE_POOLS": "tests.fakes",
            "PYTHONPATH": f"{ROOT}:{ROOT}/platform",
            "DJANGO_SETTINGS_MODULE": "berth.server.settings",
        }
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=log, stderr=log, pass_fds=[listening.fileno()]
        )
        try:
            _wait(address, process)
            yield address
        finally:
            process.terminate()
            process.wait(timeout=PROBE_TIMEOUT_SECONDS)


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PROBE_TIMEOUT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/login", timeout=10):
            return
    raise RuntimeError("The web server did not come up: see web.log in its home.")
