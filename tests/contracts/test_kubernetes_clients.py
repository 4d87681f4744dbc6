"""Commands of `berth` and programs of OpenSSH that reach a pod of a real cluster."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pools.kubernetes.api import Api
from pools.kubernetes.credentials import parse_kubeconfig
from pools.runtimes.base import PodOrder
from tests.channels.conftest import Site, running_site
from tests.channels.ssh_user import HOST, PIPES, SshUser
from tests.channels.test_port_forward import forward
from tests.channels.test_ssh_ports import free_port, listens
from tests.contracts.kubernetes_cluster import with_shipped_role
from tests.contracts.kubernetes_stage import RealKubernetesStage
from tests.contracts.pods import poll_until

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the OpenSSH client"),
]

PORT = 8888
SERVER = f"echo desk > /tmp/index.html; exec busybox httpd -f -p 127.0.0.1:{PORT} -h /tmp"


@pytest.fixture
def site(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, kubeconfig: str, tmp_path: Path
) -> Iterator[Site]:
    """Berth with a pod of a real cluster, in which a web server runs."""
    stage = RealKubernetesStage(tmp_path / "runtime", parse_kubeconfig(with_shipped_role(kubeconfig)))

    def make_order(pod_id: str) -> PodOrder:
        return stage.order(pod_id, "sh", "-c", SERVER)

    with running_site(stage.runtime, monkeypatch, make_order) as site:
        yield site
    stage.sweep(Api(parse_kubeconfig(kubeconfig)))
    stage.close()


@pytest.fixture
def user(site: Site, tmp_path: Path) -> SshUser:
    user = SshUser(site, tmp_path / "home")
    assert user.berth("ssh", "--config").returncode == 0
    return user


def read(port: int) -> str:
    url = f"http://127.0.0.1:{port}/index.html"
    with httpx.Client(timeout=100.0, trust_env=False) as client:
        return client.get(url).text


def test_ports_are_forwarded_by_berth_and_by_openssh(user: SshUser) -> None:
    _, (first, second) = forward(user.site, f"0:{PORT}", f"0:{PORT}")
    assert [read(port) for port in (first, second, first)] == ["desk\n"] * 3

    local, proxy = free_port(), free_port()
    user.start("ssh", "-N", "-L", f"{local}:localhost:{PORT}", "-D", str(proxy), HOST, **PIPES)
    poll_until(lambda: listens(proxy))
    assert read(local) == "desk\n"
    with socket.create_connection(("127.0.0.1", proxy), timeout=100) as connection:
        connection.sendall(bytes((5, 1, 0)))  # SOCKS, as VS Code uses it
        assert connection.recv(2) == bytes((5, 0))
        connection.sendall(bytes((5, 1, 0, 1, 127, 0, 0, 1)) + PORT.to_bytes(2, "big"))
        assert connection.recv(10, socket.MSG_WAITALL)[1] == 0
    opened = [row for row in user.site.audit(" forward") if row[1] == "open forward"]
    assert opened[0] == ("dave", "open forward", {"pod": "worker-0", "run": 1, "port": str(PORT)})
