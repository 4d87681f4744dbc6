"""A machine that systemd boots, with its own processes, network and directories."""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.journeys.installation import child_pids, until
from tests.journeys.on_hosts.host_namespaces import NamespaceHost

SYSTEMD = Path("/lib/systemd/systemd")
# Only these units of this machine take part in a boot. None of them is a service.
UNITS = (
    "basic", "local-fs", "multi-user", "network", "network-online", "paths", "shutdown", "slices", "sockets",
    "swap", "sysinit", "timers", "umount",
)  # fmt: skip
# The machine keeps only its own units and /var/lib. Each boot has its own ID, as the kernel would give it.
BOOT = """
mount --make-rprivate /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
mount --bind {directory}/boot-id /proc/sys/kernel/random/boot_id
mount -t tmpfs -o mode=755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind {directory}/units /etc/systemd/system
mount --bind {directory}/lib /var/lib
mount --bind {directory}/machine-id /etc/machine-id
mount --bind {directory}/sbin /usr/local/sbin
hostname {name}
exec env -i container=berth PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_GENERATOR_PATH= \\
  SYSTEMD_UNIT_PATH=/etc/systemd/system:{directory}/targets \\
  {systemd} --system --log-target=console --unit=multi-user.target
"""


def control_groups() -> str:
    """Return the directory of the cgroup v2 hierarchy, or an empty string."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next((place for _, place, kind, *_ in mounts if kind == "cgroup2"), "")


def missing_parts() -> str:
    """Return the reason why this machine cannot boot such a machine, or an empty string."""
    if not SYSTEMD.exists():
        return "systemd"
    return "" if control_groups() else "version 2 of control groups"


needs_systemd = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {missing_parts()}")


class BootedMachine:
    """A booted machine with the network, files and name of a host. The host's SSH server does not run."""

    def __init__(self, host: NamespaceHost) -> None:
        self.host, self.directory = host, host.directory
        host.process.kill()
        host.process.wait()
        (self.directory / "units").mkdir()
        (self.directory / "targets").mkdir()
        for name in UNITS:
            shutil.copy(SYSTEMD.parent / f"system/{name}.target", self.directory / "targets")
        (self.directory / "script").write_text(
            BOOT.format(directory=self.directory, name=host.name, systemd=SYSTEMD)
        )

    def boot(self) -> None:
        """Start systemd as the machine's first process, and wait until all units have started."""
        (self.directory / "boot-id").write_text(f"{uuid4()}\n")
        group = Path(control_groups()) / self.host.namespace
        group.mkdir(exist_ok=True)
        enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        command = [
            "sh", "-ec", enter, str(group), "ip", "netns", "exec", self.host.namespace, "unshare", "--cgroup",
            "--mount", "--pid", "--fork", "--uts", "--ipc", "sh", "-e", str(self.directory / "script"),
        ]  # fmt: skip
        with (self.directory / "console").open("ab") as console:
            self.host.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )
        until(self._has_booted, details=(self.directory / "console").read_text)

    def cut_power(self) -> None:
        """Kill all processes at once. Only files remain."""
        os.kill(self._first_process(), signal.SIGKILL)
        self.host.process.wait()
        until(lambda: self.host.pids() == [], details=self.host.pids)

    def run(self, *words: str, **env: str) -> str:
        """Run a command as root and return its output. The error of a failed command contains its output."""
        enter = ["nsenter", f"--target={self._first_process()}", "--all", "--"]
        done = subprocess.run(
            [*enter, *words], env={"PATH": os.environ["PATH"], "HOME": "/root", **env}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        return done.stdout

    def delete_control_groups(self) -> None:
        group = Path(control_groups()) / self.host.namespace
        for directory, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(directory).rmdir()

    def _has_booted(self) -> bool:
        assert self.host.process.poll() is None, (self.directory / "console").read_text()
        return bool(child_pids(self.host.process.pid)) and "running" in self.run(
            "systemctl", "is-system-running"
        )

    def _first_process(self) -> int:
        [pid] = child_pids(self.host.process.pid)
        return pid
