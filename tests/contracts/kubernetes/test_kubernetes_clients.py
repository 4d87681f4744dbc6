"""Tests for `berth` commands and OpenSSH programs that connect to a pod of a real cluster."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import parse_kubeconfig
from pools.runtimes.base import PodSpec, VolumeMount
from tests.channels.conftest import Site, running_site
from tests.channels.ssh_user import HOST, PIPES, SshUser
from tests.channels.test_port_forward import forward
from tests.channels.test_ssh_files import contents
from tests.channels.test_ssh_ports import listens
from tests.contracts.kubernetes.cluster import with_shipped_role
from tests.contracts.kubernetes.stage import RealKubernetesStage
from tests.contracts.pods import poll_until
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the OpenSSH client"),
]

PYTHON = Path("/usr/bin/python3")
# Pods use the Python of this machine, because the image of the tests has none.
VOLUMES = tuple(
    VolumeMount(path.strip("/"), str(Path(path).resolve()), path)
    for path in ("/usr", "/lib", "/lib64")
    if Path(path).is_dir()
)
needs_python = pytest.mark.skipif(not PYTHON.exists(), reason=f"needs {PYTHON}")
PORT = 8888
SERVER = f"echo desk > /tmp/index.html; exec busybox httpd -f -p 127.0.0.1:{PORT} -h /tmp"


@pytest.fixture
def site(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, kubeconfig: str, tmp_path: Path
) -> Iterator[Site]:
    stage = RealKubernetesStage(tmp_path / "runtime", parse_kubeconfig(with_shipped_role(kubeconfig)))

    def make_order(pod_id: str) -> PodSpec:
        # Python starts and copies files; with 1% of a core, this would take minutes.
        enough = {"cpu_milli": 1000, "memory_mib": 128}
        return stage.order(
            pod_id, "sh", "-c", SERVER, env={"PATH": "/bin:/usr/bin"}, volumes=VOLUMES, **enough
        )

    with running_site(stage.runtime, monkeypatch, make_order) as site:
        yield site
    stage.sweep(Api(parse_kubeconfig(kubeconfig)))
    stage.close()


@pytest.fixture
def user(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshUser:
    monkeypatch.setattr("tests.channels.ssh_user.PATIENCE", 300.0)
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
    opened = [row for row in user.site.audit("_forward") if row[1] == "open_forward"]
    assert opened[0] == ("dave", "open_forward", {"pod": "worker-0", "run": 1, "port": str(PORT)})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "large").write_bytes(os.urandom(2**20 + 7))
    (tree / "inner" / "program").write_text("#!/bin/sh\n")
    (tree / "inner" / "program").chmod(0o750)
    (tree / "inner" / "link").symlink_to("../large")
    (tree / "etc").symlink_to("/etc")
    return tree


@needs_python
def test_files_are_copied_both_ways(user: SshUser, tree: Path, tmp_path: Path) -> None:
    copied = user.berth("cp", str(tree), "train:data")
    assert (copied.returncode, copied.stderr.count(b"left out: ")) == (1, 1), copied.stderr
    copied = user.berth("cp", "train:data", str(tmp_path / "back"))
    assert (copied.returncode, copied.stderr) == (0, b"")
    assert contents(tmp_path / "back") == contents(tree)
    assert (tmp_path / "back" / "inner" / "link").is_symlink()
    copied = user.berth("cp", "train:missing", str(tmp_path / "nothing"))
    assert (copied.returncode, b"missing: No such file or directory" in copied.stderr) == (1, True)


@needs_python
def test_scp_copies_directories_both_ways_and_preserves_their_times(
    user: SshUser, tree: Path, tmp_path: Path
) -> None:
    (tree / "etc").unlink()  # scp copies what links point to
    for sources in ([str(tree), f"{HOST}:"], [f"{HOST}:tree", str(tmp_path / "copy")]):
        done = user.run("-rp", *sources, program="scp")
        assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert contents(tmp_path / "copy") == contents(tree)
