"""The program of a hostile pod. It prints the names of the attacks that succeeded, as a JSON list.

python -c PROGRAM FACTS

FACTS is a JSON object with the paths and process ids of the scene. The program needs only Python itself.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

FACTS: dict[str, Any] = json.loads(sys.argv[1])
HOME = Path(FACTS["home"])
LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def read(path: "Path | str") -> bool:
    return bool(Path(path).read_bytes())


def read_any(paths: "list[str]") -> bool:
    return any(attempt(partial(read, path)) for path in paths)


def proc_shows(file: str, text: str) -> bool:
    """Return whether this file of any process contains the text, which this pod knows only in reverse."""
    text = text[::-1]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if text.encode() in (entry / file).read_bytes():
                    return True
            except OSError:
                continue
    return False


def kill(name: str) -> bool:
    """Send a signal to a process of the machine. The scene checks whether it arrived."""
    os.kill(FACTS["pids"][name], signal.SIGUSR1)
    return False


def connect_in(directory: Path, name: str) -> bool:
    os.chdir(directory)  # socket paths are limited to 107 bytes
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)
    return True


def connect(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port)).close()
    return True


def trace(name: str) -> bool:
    pid = FACTS["pids"][name]
    if LIBC.ptrace(PTRACE_ATTACH, pid, 0, 0) != 0:
        return False
    os.waitpid(pid, 0)
    LIBC.ptrace(PTRACE_DETACH, pid, 0, 0)
    return True


def write(path: "Path | str") -> bool:
    """Create a file. The scene checks whether it exists on the machine."""
    Path(path).write_text("attack")
    return False


def open_for_writing(path: str) -> bool:
    os.close(os.open(path, os.O_WRONLY))
    return True


def run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def mount(directory: str) -> bool:
    return run("mount", "-t", "tmpfs", "none", directory) and run("umount", directory)


def become_root() -> bool:
    os.setuid(0)
    return os.geteuid() == 0


def find_memory() -> bool:
    """Find the victim's System V shared memory by its key."""
    return bool(LIBC.shmget(FACTS["key"], 1, 0) >= 0)


def link_to_secret() -> bool:
    os.link(HOME / "secret_key", Path(os.environ["BERTH_WORKSPACE"]) / "linked")
    return True


ATTACKS: dict[str, Callable[[], bool]] = {
    "read the secret key": lambda: read(HOME / "secret_key"),
    "read the admin password": lambda: read(HOME / "admin-password"),
    "connect to PostgreSQL's socket": lambda: connect_in(HOME / "postgres", "socket"),
    "read another project's workspace": lambda: read(HOME / "run" / "workspaces" / "victim" / "model"),
    "read another pod's log": lambda: read(HOME / "run" / "pods" / "victim" / "log"),
    "read another pod's order": lambda: read(HOME / "run" / "pods" / "victim" / "order"),
    "read another pod's secret file": lambda: read_any(FACTS["secret_files"]),
    "read its own order": lambda: read(HOME / "run" / "pods" / "hostile" / "order"),
    "write a record for itself": lambda: write(HOME / "run" / "pods" / "hostile" / "forged"),
    "read another process's environment": lambda: proc_shows("environ", FACTS["secret"]),
    "read another process's command line": lambda: proc_shows("cmdline", FACTS["word"]),
    "signal another pod": lambda: kill("victim"),
    "signal Berth": lambda: kill("berth"),
    "trace another pod": lambda: trace("victim"),
    "write to the machine's /tmp": lambda: write(FACTS["tmp"]),
    "write to the machine's /dev/shm": lambda: write(FACTS["shm"]),
    "write to /usr": lambda: write(FACTS["usr"]),
    "find another pod's shared memory": find_memory,
    "read the kernel's log": lambda: read_some("/dev/kmsg"),
    "change the core pattern": lambda: open_for_writing("/proc/sys/kernel/core_pattern"),
    "mount a file system": lambda: mount(os.environ["BERTH_POD_DIR"]),
    "become root": become_root,
    "link to a file of Berth": link_to_secret,
    "create a user namespace": lambda: run("unshare", "--user", "true"),
    "connect to a port of the machine": lambda: connect(FACTS["port"]),
}


def read_some(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return bool(os.read(descriptor, 8192))
    finally:
        os.close(descriptor)


def attempt(attack: Callable[[], bool]) -> bool:
    try:
        return attack()
    except OSError:
        return False


print(json.dumps([name for name, attack in ATTACKS.items() if attempt(attack)]))
