"""Ways in which a pool connects to its Slurm cluster, each with its possible faults."""

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, Protocol

from tests.contracts.slurm.cluster import FAULTS, SlurmCluster
from tests.contracts.slurm.rest import SlurmRestServer
from tests.journeys.kills.faults import Fault, Hanging
from tests.journeys.on_slurm.slurm_pool import installation_settings

PROGRAMS = ("squeue", "squeue", "sbatch", "sbatch", "scancel")
METHODS = ("GET", "GET", "POST", "POST", "DELETE")
FORWARDED_HEADERS = ("X-SLURM-USER-NAME", "X-SLURM-USER-TOKEN", "Accept", "Content-Type")
RESPONSE_SECONDS = 90  # longer than Berth waits for any response


class Access(Protocol):
    """How a pool connects to its cluster: settings of the installation and the pool, and faults."""

    def installation_settings(self, port: int) -> dict[str, str]: ...

    def provider_settings(self) -> Mapping[str, Any]: ...

    def pool_options(self, place: Path) -> list[str]:
        """Return options of `berth pool create`. Write the files that they name to `place`."""

    def faults(self, hanging: Hanging) -> list[Fault]: ...


@dataclass
class ProgramAccess:
    """Access through Slurm's programs, which may hang, fail or lose a response."""

    slurm: SlurmCluster

    def installation_settings(self, port: int) -> dict[str, str]:
        return installation_settings(self.slurm, port)

    def provider_settings(self) -> Mapping[str, Any]:
        return {}

    def pool_options(self, place: Path) -> list[str]:
        return []

    def faults(self, hanging: Hanging) -> list[Fault]:
        return [Fault("next call", self.fail_next_call, 8)]

    def fail_next_call(self, random: Random) -> str:
        program, fault = random.choice(PROGRAMS), random.choice(FAULTS)
        self.slurm.fail_next_call(program, fault)
        return f"{program}: {fault}"


@dataclass
class RestAccess:
    """Access through slurmrestd behind a proxy. Both may fail, and Berth finds none of Slurm's programs."""

    server: SlurmRestServer
    proxy: "FaultyProxy"

    def installation_settings(self, port: int) -> dict[str, str]:
        slurm = self.server.cluster
        return {
            name: value for name, value in installation_settings(slurm, port).items() if name not in slurm.env
        }

    def provider_settings(self) -> Mapping[str, Any]:
        return {"rest_url": self.proxy.url, "rest_user": self.server.user}

    def pool_options(self, place: Path) -> list[str]:
        (place / "token").write_text(self.server.token(seconds=36_000))
        return ["--slurm-token", str(place / "token")]

    def faults(self, hanging: Hanging) -> list[Fault]:
        return [
            Fault("next call", self.fail_next_call, 8),
            Fault("slurmrestd is killed", self.restart, 2),
            hanging.hang("slurmrestd", lambda: [self.server.cluster.processes[self.server.name].pid], 2),
        ]

    def fail_next_call(self, random: Random) -> str:
        method, fault = random.choice(METHODS), random.choice(FAULTS)
        self.proxy.next_faults[method] = fault
        return f"{method}: {fault}"

    def restart(self, _: Random) -> str:
        self.server.kill()
        self.server.start()
        return self.server.name


@dataclass
class FaultyProxy:
    """An HTTP proxy for `upstream`, a port on loopback.

    `next_faults` maps HTTP methods to the faults of their next requests.
    """

    upstream: int
    url: str = ""
    next_faults: dict[str, str] = field(default_factory=dict)
    is_closed: threading.Event = field(default_factory=threading.Event)

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length", 0))
        body = request.rfile.read(length)
        fault = self.next_faults.pop(request.command, "")
        if fault == "hang":
            self.is_closed.wait(RESPONSE_SECONDS)
            return
        if fault == "fail":
            request.send_error(502)
            return
        headers = {name: request.headers[name] for name in FORWARDED_HEADERS if name in request.headers}
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=RESPONSE_SECONDS)
        try:
            upstream.request(request.command, request.path, body or None, headers)
            response = upstream.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            return  # the connection is closed without a response, as that of the upstream was
        finally:
            upstream.close()
        if fault == "lose":
            return
        request.send_response(response.status)
        request.send_header("Content-Type", response.headers.get("Content-Type", "application/json"))
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


@contextmanager
def faulty_proxy(upstream: int) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(upstream)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            proxy.handle(self)

        def do_POST(self) -> None:
            proxy.handle(self)

        def do_DELETE(self) -> None:
            proxy.handle(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            # Berth, which is killed at random, has closed the connection.
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.is_closed.set()
            server.shutdown()
