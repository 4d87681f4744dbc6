"""Benchmark REST submissions per second: `python -m benchmarks.rest_submit [--seconds N]`.

The server process has its own database and no other load. The output shows the rate and the server's CPU time
per request, which does not depend on other load on the machine. For comparison, `--handler pages` serves REST
as Django serves pages, `--handler rest` with one thread switch per request, and `--handler wsgi` with
Python's threaded server.
"""

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from benchmarks.setup.arguments import parser

ROOT = Path(__file__).parents[1]
SERVER = """
import os, socket, sys
sys.path[:0] = [{root!r}, {root!r} + "/platform"]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
kind, fd = sys.argv[1], int(sys.argv[2])
listening = socket.socket(fileno=fd)
if kind == "wsgi":
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
    from django.core.wsgi import get_wsgi_application
    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"
        def log_message(self, *args): pass
    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True
    server = Server(listening.getsockname(), Quiet, bind_and_activate=False)
    server.socket = listening
    server.server_name, server.server_port = listening.getsockname()
    server.setup_environ()
    server.set_app(get_wsgi_application())
    server.serve_forever()
else:
    import uvicorn
    os.environ.setdefault("BERTH_DATABASE_POOL", "8")
    from django.core.asgi import get_asgi_application
    pages = get_asgi_application()
    if kind == "rest":
        from berth.server.api.transport.asgi import RestRouter
        pages = RestRouter(pages)
    config = uvicorn.Config(pages, access_log=False, log_level="warning", lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])
"""
PREPARE = """
from django.core.management import call_command
from tests.cast import make_cast
from projects.services.people import tokens
call_command("migrate", verbosity=0)
cast = make_cast()
print(tokens.issue(actor=cast.dave, name="bench", scopes=["read", "write"], expires_at=None)[1])
"""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=5)
    options.add_argument("--clients", type=int, nargs="*", default=[1, 8])
    options.add_argument("--handler", choices=["pages", "rest", "wsgi"], nargs="*", default=["rest"])
    options.add_argument("--json", type=Path, help="File to write the results to.")
    arguments = options.parse_args()
    if arguments.tiny:
        arguments.seconds, arguments.clients, arguments.json = 0.3, [1, 2], None
    rows = []
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as place, database(Path(place)) as env:
        token = run(PREPARE, env)
        print(
            f"{'handler':<8} {'clients':>7} {'per second':>11} {'p50 ms':>8} {'p99 ms':>8} "
            f"{'CPU ms each':>12}"
        )
        for handler in arguments.handler:
            with server(handler, env) as (address, process):
                measure(address, token, process, 1, min(arguments.seconds, 1.0))  # warm up
                for clients in arguments.clients:
                    row = {"handler": handler, **measure(address, token, process, clients, arguments.seconds)}
                    rows.append(row)
                    print(
                        f"{handler:<8} {clients:>7} {row['per_second']:>11.1f} {row['p50_ms']:>8.1f}"
                        f" {row['p99_ms']:>8.1f} {row['cpu_ms']:>12.2f}"
                    )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure(
    address: str, token: str, process: psutil.Process, clients: int, seconds: float
) -> dict[str, float]:
    before, began = cpu_seconds(process), time.perf_counter()
    durations: list[float] = []
    threads = [
        threading.Thread(target=submit, args=(address, token, began + seconds, durations))
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed, used = time.perf_counter() - began, cpu_seconds(process) - before
    durations.sort()
    return {
        "clients": clients,
        "per_second": len(durations) / passed,
        "p50_ms": statistics.median(durations) * 1000,
        "p99_ms": durations[int(len(durations) * 0.99)] * 1000,
        "cpu_ms": used / len(durations) * 1000,
    }


def submit(address: str, token: str, until: float, durations: list[float]) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, headers=headers, timeout=30, trust_env=False) as http:
        while not durations or time.perf_counter() < until:
            began = time.perf_counter()
            name = f"w{time.monotonic_ns()}-{threading.get_ident() % 1000}"
            document = {
                "name": name, "project": "vision", "command": "true",
                "roles": [{"name": "worker", "replicas": 2, "gpu": 1}],
            }  # fmt: skip
            answer = http.post("/api/v1/workloads", json=document, headers={"Idempotency-Key": name})
            assert answer.status_code == 201, answer.text
            durations.append(time.perf_counter() - began)


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextlib.contextmanager
def database(place: Path) -> Iterator[dict[str, str]]:
    from berth.db.embedded import EmbeddedCluster, run_server

    cluster = EmbeddedCluster(place / "postgres")
    with run_server(cluster, log=place / "postgres.log"):
        yield {
            **os.environ,
            "BERTH_HOME": str(place / "home"),
            "DATABASE_URL": cluster.url(),
            "DJANGO_SETTINGS_MODULE": "berth.server.settings",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "BERTH_RATE_READ": "1000000000",
            "BERTH_RATE_WRITE": "1000000000",
        }


def run(code: str, env: dict[str, str]) -> str:
    text = f"import django; django.setup()\n{code}"
    process_result = subprocess.run(
        [sys.executable, "-c", text], env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    return process_result.stdout.strip().splitlines()[-1]


@contextlib.contextmanager
def server(handler: str, env: dict[str, str]) -> Iterator[tuple[str, psutil.Process]]:
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    listening.set_inheritable(True)
    command = [sys.executable, "-c", SERVER.format(root=str(ROOT)), handler, str(listening.fileno())]
    process = subprocess.Popen(command, env=env, pass_fds=[listening.fileno()])
    try:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{address}/readyz", timeout=30, trust_env=False).status_code == 200:
                    break
            time.sleep(0.1)
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(10)
        listening.close()


if __name__ == "__main__":
    main()
