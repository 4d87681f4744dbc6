"""Fixtures for port proxy tests: a workload whose pod is a small local web server."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
import pytest
from django.utils import timezone

from projects.actor import Actor
from projects.models import Phase, Workload
from projects.models import Pod as PodRow
from projects.port_proxy.origins import Origins
from projects.port_proxy.proxy import OPEN_PREFIX, PortProxy
from projects.port_proxy.sessions import PortSessionCache
from projects.services.workloads import ports
from tests import factories as make
from tests.cast import Cast, make_cast
from tests.port_proxy.pod import Pod, serve_all


@dataclass
class PortSetup:
    """A running interactive workload behind the port proxy, which serves all host names on `port`."""

    cast: Cast
    workload: Workload
    pod: PodRow
    server: Pod
    origins: Origins
    port: int
    sessions: PortSessionCache

    @property
    def origin(self) -> str:
        return self.origins.origin_for(self.workload.pk, "lab")

    @property
    def host(self) -> str:
        return self.origin.removeprefix("http://")

    def link(self, actor: Actor | None = None, port: str = "lab", at: datetime | None = None) -> str:
        return ports.issue_link(
            actor=actor or self.cast.dave, workload=self.workload, port=port, at=at or timezone.now()
        )[1]

    def ask(self, path: str, method: str = "GET", cookie: str = "", **options: Any) -> httpx.Response:
        headers = {"Host": self.host, **({"Cookie": cookie} if cookie else {}), **options.pop("headers", {})}
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.request(method, url, headers=headers, timeout=120, trust_env=False, **options)

    def enter(self, actor: Actor | None = None) -> str:
        """Redeem a new link and return the value of the cookie."""
        return ports.redeem_link(self.link(actor), self.workload.pk, "lab", timezone.now())

    def open_session(self, actor: Actor | None = None) -> str:
        """Open a new link over HTTP and return the cookie."""
        answer = self.ask(OPEN_PREFIX + self.link(actor))
        assert answer.status_code == 303, answer.text
        return answer.headers["set-cookie"].partition(";")[0]


@pytest.fixture(params=["direct", "api_server"])
def port_setup(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[PortSetup]:
    """Run a pod that the proxy reaches directly or through the API server of its cluster."""
    cast, server, sessions = make_cast(), Pod(), PortSessionCache()
    workload, pod = running(cast)
    if request.param == "api_server":
        cast.pool.provider, cast.pool.provider_settings = "kubernetes", {"ports": "api_server"}
        cast.pool.save()

    def open_port(pod_id: str, port: int) -> socket.socket:
        assert (pod_id, request.param) == (str(pod.pk), "api_server")
        return socket.create_connection(("127.0.0.1", port))

    hosts = Origins("http", ".localhost", 80)
    proxy = PortProxy(
        _berth, hosts, reserved_cookies=("sessionid", "csrftoken"), sessions=sessions, open_port=open_port
    )
    with serve_all(server, proxy) as (inner, outer):
        pod.ports = {"lab": {"address": "127.0.0.1", "port": inner}, "other": {"address": "", "port": inner}}
        pod.save()
        proxy.origins = hosts = Origins("http", ".localhost", outer)
        yield PortSetup(cast, workload, pod, server, hosts, outer, sessions)


@pytest.fixture
def offline_setup(db: None) -> PortSetup:
    """Return a setup that has only database rows and no running server."""
    cast = make_cast()
    workload, pod = running(cast)
    pod.ports = {"lab": {"address": "127.0.0.1", "port": 20_000}, "other": {"address": "", "port": 20_001}}
    pod.save()
    return PortSetup(cast, workload, pod, Pod(), Origins("http", ".localhost", 80), 0, PortSessionCache())


def running(cast: Cast) -> tuple[Workload, PodRow]:
    workload = make.workload(
        cast.vision, "desk", by=cast.dave.user, kind="interactive", phase=Phase.RUNNING, run=1,
        started_at=make.ago(minutes=5),
    )  # fmt: skip
    workload.spec = {**workload.spec, "kind": "interactive", "ports": [{"name": "lab"}, {"name": "other"}]}
    workload.save()
    node = make.node(cast.pool, address="127.0.0.1")
    return workload, make.place(workload, node, [0])


async def _berth(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"berth"})
