"""Benchmark REST submissions per second: `python -m benchmarks.rest_submit [--seconds N]`.

The web processes share a socket and serve no other load. Their database is separate. The output shows the
submission rate, and the CPU time per workload of the web processes and of PostgreSQL, which depends less on
other load on the machine. With `--batch`, each request submits several workloads.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import product
from pathlib import Path

import psutil

from benchmarks.setup.arguments import parser
from benchmarks.setup.cpu_time import own_seconds, tree_seconds
from benchmarks.setup.own_database import own_cluster
from berth.server.up.address import bind_socket, socket_url, wait_until_ready

ROOT = Path(__file__).parents[1]
PREPARE = """
from django.core.management import call_command
from tests.cast import make_cast
from projects.services.people import tokens
call_command("migrate", verbosity=0)
cast = make_cast()
print(tokens.issue(actor=cast.dave, name="bench", scopes=["read", "write"], expires_at=None)[1])
"""


DOCUMENT = json.dumps(
    {
        "name": "NAME", "project": "vision", "command": "true",
        "roles": [{"name": "worker", "replicas": 2, "gpu": 1}],
    }
)  # fmt: skip


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=5)
    options.add_argument("--clients", type=int, nargs="*", default=[1, 8])
    options.add_argument("--processes", type=int, nargs="*", default=[1], help="Numbers of web processes.")
    options.add_argument("--batch", type=int, nargs="*", default=[1, 1000], help="Workloads per request.")
    options.add_argument("--json", type=Path, help="File to write the results to.")
    arguments = options.parse_args()
    if arguments.tiny:
        arguments.seconds, arguments.clients, arguments.batch, arguments.json = 0.3, [1, 2], [1, 3], None
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="berth-bench-") as place,
        database(Path(place)) as (env, postgres),
    ):
        token = run(PREPARE, env)
        print(
            f"{'processes':>9} {'clients':>7} {'batch':>6} {'per second':>11} {'p50 ms':>8} {'p99 ms':>8} "
            f"{'web CPU ms':>11} {'database CPU ms':>16}"
        )
        for count in arguments.processes:
            with server(count, env) as (address, webs):
                for batch, clients in product(arguments.batch, arguments.clients):
                    warm_up = Load(address, token, 4 * count, batch, min(arguments.seconds, 1.0))
                    measure(warm_up, webs, postgres)
                    load = Load(address, token, clients, batch, arguments.seconds)
                    row = {"processes": count, **measure(load, webs, postgres)}
                    rows.append(row)
                    print(
                        f"{count:>9} {clients:>7} {batch:>6} {row['per_second']:>11.1f} {row['p50_ms']:>8.1f}"
                        f" {row['p99_ms']:>8.1f} {row['cpu_ms']:>11.2f} {row['database_cpu_ms']:>16.2f}",
                        flush=True,
                    )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


@dataclass(frozen=True)
class Load:
    """Parameters of the load. Each client sends requests one after another for `seconds`."""

    address: str
    token: str
    clients: int
    batch: int
    seconds: float


def measure(load: Load, webs: list[psutil.Process], postgres: psutil.Process) -> dict[str, float]:
    before, database_before = sum(map(own_seconds, webs)), tree_seconds(postgres)
    began = time.perf_counter()
    durations: list[float] = []
    threads = [
        threading.Thread(target=submit, args=(load, began + load.seconds, durations))
        for _ in range(load.clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed, used = time.perf_counter() - began, sum(map(own_seconds, webs)) - before
    database_used = tree_seconds(postgres) - database_before
    durations.sort()
    workloads = len(durations) * load.batch
    return {
        "clients": load.clients,
        "batch": load.batch,
        "per_second": workloads / passed,
        "p50_ms": statistics.median(durations) * 1000,
        "p99_ms": durations[int(len(durations) * 0.99)] * 1000,
        "cpu_ms": used / workloads * 1000,
        "database_cpu_ms": database_used / workloads * 1000,
    }


def submit(load: Load, until: float, durations: list[float]) -> None:
    """Send requests over one connection until the deadline, with as little client-side work as possible."""
    headers = {"Authorization": f"Bearer {load.token}", "Content-Type": "application/json"}
    path, expected = ("/api/v1/workloads", 201) if load.batch == 1 else ("/api/v1/workloads:batch", 200)
    http = HTTPConnection(load.address.removeprefix("http://"), timeout=120)
    with contextlib.closing(http):
        while not durations or time.perf_counter() < until:
            key = f"w{time.monotonic_ns()}-{threading.get_ident() % 1000}"
            content = body(key, load.batch)
            began = time.perf_counter()
            http.request("POST", path, content, {**headers, "Idempotency-Key": key})
            response = http.getresponse()
            text = response.read()
            durations.append(time.perf_counter() - began)
            assert response.status == expected, text
            assert load.batch == 1 or json.loads(text)["stored"] == load.batch


def body(key: str, batch: int) -> str:
    documents = [DOCUMENT.replace("NAME", f"{key}-{number}") for number in range(batch)]
    return documents[0] if batch == 1 else f'{{"items": [{",".join(documents)}]}}'


@contextlib.contextmanager
def database(place: Path) -> Iterator[tuple[dict[str, str], psutil.Process]]:
    with own_cluster(place) as cluster:
        pid = cluster.server_pid()
        assert pid is not None
        env = {
            **os.environ,
            "BERTH_HOME": str(place / "home"),
            "DATABASE_URL": cluster.url(),
            "DJANGO_SETTINGS_MODULE": "berth.server.settings",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "BERTH_RATE_READ": "1000000000",
            "BERTH_RATE_WRITE": "1000000000",
        }
        yield env, psutil.Process(pid)


def run(code: str, env: dict[str, str]) -> str:
    text = f"import django; django.setup()\n{code}"
    process_result = subprocess.run(
        [sys.executable, "-c", text], env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    return process_result.stdout.strip().splitlines()[-1]


@contextlib.contextmanager
def server(count: int, env: dict[str, str]) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Run `count` web processes on a shared socket, like `berth up`. Yield their URL and the processes."""
    with bind_socket("127.0.0.1", 0) as listening:
        number = listening.fileno()
        command = [sys.executable, "-m", "berth.server.up.serve", "--fd", str(number)]
        processes = [subprocess.Popen(command, env=env, pass_fds=[number]) for _ in range(count)]
        try:
            address = socket_url(listening)
            assert wait_until_ready(address, should_continue=lambda: processes[0].poll() is None)
            yield address, [psutil.Process(process.pid) for process in processes]
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(20)


if __name__ == "__main__":
    main()
