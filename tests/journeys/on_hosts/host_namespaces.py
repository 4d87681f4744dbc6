"""Hosts with SSH servers in network namespaces, each with its own address and directories."""

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.journeys.installation import until
from tests.pools.ssh.sshd import CONFIG, SSHD, generate_key

NETWORK = "10.213.77"
SERVER = f"{NETWORK}.1"
BRIDGE = "berth-ssh"
PREFIX = "berth-"  # prefix of the names of network namespaces
LOCK = Path("/run/lock/berth-ssh-hosts")
LISTENING = "Server listening"
FIRMWARE = "/sys/class/dmi/id/product_uuid"
# Hides the directories of this machine: agents use their default directory, and find no systemd.
PRIVATE = """
mount --make-rprivate /
mount --bind {directory}/lib /var/lib
for file in /etc/machine-id {firmware}; do
  [ ! -e $file ] || mount --bind {directory}/machine-id $file
done
mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd
mount --bind {directory}/sbin /usr/local/sbin
exec {sshd} -D -e -f {directory}/config
"""
# Reports GPUs that do not exist, in each format that is asked for.
DRIVER = """#!/bin/sh
for index in $(seq 0 {last}); do
  case "$*" in
  *index*) echo "$index, GPU-{name}-$index, 0, 0" ;;
  *uuid*) echo "GPU-{name}-$index, NVIDIA L4, 23034, 550.54.15" ;;
  *) echo "NVIDIA L4" ;;
  esac
done
"""


def missing_parts() -> str:
    """Return the reason why this machine cannot run such hosts, or an empty string."""
    if os.geteuid() != 0:
        return "root"
    programs = [name for name in ("ip", "unshare", "nsenter", "ssh-keygen") if shutil.which(name) is None]
    programs += [] if Path(SSHD).exists() else ["sshd"]
    if programs:
        return ", ".join(programs)
    made = subprocess.run(["unshare", "--net", "--mount", "true"], check=False, capture_output=True)
    return "permission to create namespaces" if made.returncode else ""


needs_namespaces = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {missing_parts()}")


@dataclass
class NamespaceHost:
    """A host in a network namespace. Its /var/lib is `directory / "lib"`."""

    name: str
    address: str
    directory: Path
    process: "subprocess.Popen[bytes]" = field(init=False)

    @property
    def namespace(self) -> str:
        return f"{PREFIX}{self.name}"

    @property
    def home(self) -> Path:
        return self.directory / "lib/berth-machine"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def pids(self) -> list[int]:
        """Return all processes in the host's namespace."""
        return _pids(self.namespace)

    def start(self) -> None:
        """Start the SSH server and wait until it listens."""
        started = self.log.count(LISTENING) if (self.directory / "log").exists() else 0
        script = str(self.directory / "script")
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "unshare", "--mount", "sh", script], stderr=log,
                start_new_session=True,
            )  # fmt: skip
        until(lambda: self.process.poll() is not None or self.log.count(LISTENING) > started)
        assert self.process.poll() is None, self.log

    def restart(self) -> None:
        """Kill the SSH server without its connections, and start a new one."""
        self.process.kill()
        self.process.wait()
        self.start()


@contextmanager
def namespace_hosts(
    directory: Path, names: list[str], gpus: int = 0
) -> Iterator[tuple[list[NamespaceHost], Path]]:
    """Run hosts on a separate network. Yield them and the file with their private key.

    Their driver reports GPUs that do not exist. Only one run at a time uses the network. Hosts left behind by
    a killed run are deleted first.
    """
    key = directory / "key"
    generate_key(key)
    with ExitStack() as stack:
        lock = stack.enter_context(LOCK.open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        _delete_leftovers()
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", BRIDGE)
        _run("ip", "address", "add", f"{SERVER}/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        hosts = [
            stack.enter_context(_host(directory / name, name, number, key, gpus))
            for number, name in enumerate(names, start=11)
        ]
        yield hosts, key


@contextmanager
def _host(directory: Path, name: str, number: int, key: Path, gpus: int) -> Iterator[NamespaceHost]:
    (directory / "lib").mkdir(parents=True)
    (directory / "sbin").mkdir()
    if gpus:
        driver = directory / "sbin/nvidia-smi"
        driver.write_text(DRIVER.format(name=name, last=gpus - 1))
        driver.chmod(0o755)
    # Hosts would otherwise have the ID of this machine.
    (directory / "machine-id").write_text(f"{name.encode().hex():f>32}\n")
    generate_key(directory / "host_key")
    shutil.copy(key.with_suffix(".pub"), directory / "authorized_keys")
    host = NamespaceHost(name, f"{NETWORK}.{number}", directory)
    config = CONFIG.format(
        address=host.address, port=22, directory=directory, authorized_keys=directory / "authorized_keys"
    )
    (directory / "config").write_text(config)
    (directory / "script").write_text(PRIVATE.format(directory=directory, firmware=FIRMWARE, sshd=SSHD))
    Path("/run/sshd").mkdir(exist_ok=True)
    space, link = host.namespace, f"v-{name}"
    with ExitStack() as stack:
        _run("ip", "netns", "add", space)
        stack.callback(_run, "ip", "netns", "del", space)
        _delete_link(link)
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
        stack.callback(_delete_link, link)
        _run("ip", "link", "set", link, "master", BRIDGE, "up")
        for words in (
            ["address", "add", f"{host.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
            ["link", "set", "lo", "up"],
        ):  # fmt: skip
            _run("ip", "-n", space, *words)
        stack.callback(_end_all, host)
        host.start()
        yield host


def _end_all(host: NamespaceHost) -> None:
    """Kill all processes of the host: agents, nodes and pods."""
    _kill_processes(host.namespace)
    host.process.wait()


def _delete_leftovers() -> None:
    """Delete the network that a killed run left behind."""
    for line in _run("ip", "netns", "list").splitlines():
        name = line.partition(" ")[0]
        if name.startswith(PREFIX):
            _kill_processes(name)
            _run("ip", "netns", "del", name)
    if Path("/sys/class/net", BRIDGE).exists():
        _run("ip", "link", "del", BRIDGE)


def _delete_link(link: str) -> None:
    """Delete a host's network link, which outlives its namespace if another mount namespace has a copy."""
    if Path("/sys/class/net", link).exists():
        _run("ip", "link", "del", link)


def _kill_processes(namespace: str) -> None:
    def ended() -> bool:
        for pid in _pids(namespace):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not _pids(namespace)

    until(ended)


def _pids(namespace: str) -> list[int]:
    return [int(pid) for pid in _run("ip", "netns", "pids", namespace).split()]


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
