"""Real SSH servers on loopback addresses, each with its own keys."""

import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pools.providers.ssh.endpoint import Endpoint, normalize_host_key
from tests.journeys.installation import until
from tests.support.ports import free_port

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(
    not (Path(SSHD).exists() and shutil.which("ssh-keygen")), reason="openssh-server is not installed"
)
# On a machine with systemd, agents must not install units: the server's sessions do not see it.
HIDE_SYSTEMD = (
    ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run/systemd && exec "$@"', "sh"]
    if Path("/run/systemd/system").exists()
    else []
)
CONFIG = """
ListenAddress {address}:{port}
HostKey {directory}/host_key
AuthorizedKeysFile {authorized_keys}
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PidFile none
LogLevel VERBOSE
SetEnv HOME={directory}
"""  # the login scripts of the developer's home directory could delay commands


@dataclass(frozen=True)
class SshServer:
    """A running server. `log` contains its logins."""

    address: str
    port: int
    directory: Path
    private_key: str
    host_key: str
    process: "subprocess.Popen[bytes]"

    def endpoint(self, **more: object) -> Endpoint:
        values = {"user": "root", "private_key": self.private_key, "host_key": self.host_key, **more}
        return Endpoint(self.address, port=self.port, **values)  # type: ignore[arg-type]

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()


def generate_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> tuple[str, str]:
    """Create a key pair, and return the private and the public key."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path.read_text(), normalize_host_key(path.with_suffix(".pub").read_text())


@contextmanager
def ssh_server(directory: Path, address: str = "127.0.0.1", port: int = 0) -> Iterator[SshServer]:
    """Run a server, with new keys unless the directory already has keys."""
    directory.mkdir(parents=True, exist_ok=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    if not (directory / "host_key").exists():
        generate_key(directory / "host_key")
    if not (directory / "login_key").exists():
        generate_key(directory / "login_key")
        shutil.copy(directory / "login_key.pub", directory / "authorized_keys")
    port = port or free_port(address)
    config = CONFIG.format(
        address=address, port=port, directory=directory, authorized_keys=directory / "authorized_keys"
    )
    (directory / "config").write_text(config)
    command = [*HIDE_SYSTEMD, SSHD, "-D", "-e", "-f", str(directory / "config")]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(command, stderr=log, start_new_session=True)
    server = SshServer(
        address, port, directory, (directory / "login_key").read_text(),
        normalize_host_key((directory / "host_key.pub").read_text()), process,
    )  # fmt: skip
    try:
        until(lambda: process.poll() is not None or is_listening(address, port))
        assert process.poll() is None, server.log
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def is_listening(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


@contextmanager
def silent_server(address: str) -> Iterator[int]:
    """Accept connections without sending data, and yield the port."""
    accepted: list[socket.socket] = []
    with socket.create_server((address, 0)) as server:

        def accept() -> None:
            try:
                while True:
                    accepted.append(server.accept()[0])
            except OSError:
                pass  # the server was closed

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
    for connection in accepted:
        connection.close()
    thread.join()
