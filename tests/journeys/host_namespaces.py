"""Hosts with SSH servers in network namespaces, each with its own address and directories."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys.installation import until
from tests.pools.ssh.sshd import CONFIG, SSHD, generate_key

NETWORK = "10.213.77"
SERVER = f"{NETWORK}.1"
# Hides the directories of this machine: agents use their default directory, and find no systemd.
PRIVATE = """
mount --make-rprivate /
mount --bind {directory}/lib /var/lib
mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd
exec {sshd} -D -e -f {directory}/config
"""


def missing_parts() -> str:
    """Return what this machine lacks to run such hosts, or an empty string."""
    if os.geteuid() != 0:
        return "root"
    programs = [name for name in ("ip", "unshare", "nsenter", "ssh-keygen") if shutil.which(name) is None]
    programs += [] if Path(SSHD).exists() else ["sshd"]
    if programs:
        return ", ".join(programs)
    made = subprocess.run(["unshare", "--net", "--mount", "true"], check=False, capture_output=True)
    return "permission to create namespaces" if made.returncode else ""


needs_namespaces = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {missing_parts()}")


@dataclass(frozen=True)
class NamespaceHost:
    """Host whose directory /var/lib is `directory / "lib"`."""

    name: str
    address: str
    directory: Path
    process: "subprocess.Popen[bytes]"

    @property
    def home(self) -> Path:
        return self.directory / "lib/berth-machine"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def pids(self) -> list[int]:
        """Return all processes in the host's namespace."""
        return [int(pid) for pid in _run("ip", "netns", "pids", self.name).split()]


@contextmanager
def namespace_hosts(directory: Path, names: list[str]) -> Iterator[tuple[list[NamespaceHost], Path]]:
    """Run hosts on a separate network with this machine. Yield them and the file with their private key."""
    key = directory / "key"
    generate_key(key)
    bridge = "berth-ssh"
    with ExitStack() as stack:
        _run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", bridge)
        _run("ip", "address", "add", f"{SERVER}/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        hosts = [
            stack.enter_context(_host(directory / name, name, number, bridge, key))
            for number, name in enumerate(names, start=11)
        ]
        yield hosts, key


@contextmanager
def _host(directory: Path, name: str, number: int, bridge: str, key: Path) -> Iterator[NamespaceHost]:
    (directory / "lib/berth-machine").mkdir(parents=True)
    # Hosts would otherwise have the ID of this machine.
    (directory / "lib/berth-machine/machine-id").write_text(f"{name:x>32}")
    generate_key(directory / "host_key")
    shutil.copy(key.with_suffix(".pub"), directory / "authorized_keys")
    address = f"{NETWORK}.{number}"
    config = CONFIG.format(
        address=address, port=22, directory=directory, authorized_keys=directory / "authorized_keys"
    )
    (directory / "config").write_text(config)
    (directory / "script").write_text(PRIVATE.format(directory=directory, sshd=SSHD))
    Path("/run/sshd").mkdir(exist_ok=True)
    with ExitStack() as stack:
        _run("ip", "netns", "add", name)
        stack.callback(_run, "ip", "netns", "del", name)
        _run("ip", "link", "add", f"v-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", f"v-{name}", "master", bridge, "up")
        for words in (
            ["address", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
            ["link", "set", "lo", "up"],
        ):  # fmt: skip
            _run("ip", "-n", name, *words)
        command = ["ip", "netns", "exec", name, "unshare", "--mount", "sh", str(directory / "script")]
        with (directory / "log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log, start_new_session=True)
        host = NamespaceHost(name, address, directory, process)
        stack.callback(_end_all, host)
        until(lambda: process.poll() is not None or "Server listening" in host.log)
        assert process.poll() is None, host.log
        yield host


def _end_all(host: NamespaceHost) -> None:
    """Kill all of the host's processes: agents, nodes and pods."""

    def ended() -> bool:
        for pid in host.pids():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        return not host.pids()

    until(ended)
    host.process.wait()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
