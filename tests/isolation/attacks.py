"""The program of a hostile pod. It prints the names of successful attacks as a JSON list.

python -c PROGRAM FACTS

FACTS is a JSON object with paths and process IDs that the attacks need. The program needs only Python itself.
Finally, it allocates more memory than its limit, and prints "survived" if nothing prevents that.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

FACTS: dict[str, Any] = json.loads(sys.argv[1])
HOME, WORKSPACE = Path(FACTS["home"]), Path(os.environ["BERTH_WORKSPACE"])
LIBC = ctypes.CDLL(None, use_errno=True)
SECRET = HOME / "secret_key"
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
MIB = 1024 * 1024
# System calls without a function in the C library, on x86_64 and aarch64.
CALLS = {
    "add_key": (248, 217), "bpf": (321, 280), "io_uring_setup": (425, 425), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
}  # fmt: skip
PROCESS_KEYRING, CREATE_MAP, USER_MODE_ONLY, READ_ALL = -2, 0, 1, 3
GET_FLAGS, SET_FLAGS = 0x8913, 0x8914  # requests for flags of a network interface
SET_STATUS = 0x10  # status flag of the clock
ECHO_PORT = 7


def read(path: "Path | str") -> bool:
    return bool(Path(path).read_bytes())


def read_any(paths: "list[str]") -> bool:
    return any(attempt(partial(read, path)) for path in paths)


def proc_shows(file: str, text: str) -> bool:
    """Return whether this /proc file of any process contains the text. The pod knows only the reversed
    text.
    """
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
    """Send a signal to a process of the machine. The test checks whether it arrived."""
    os.kill(FACTS["pids"][name], signal.SIGUSR1)
    return False


def connect_in(directory: Path, name: str) -> bool:
    os.chdir(directory)  # socket paths are limited to 107 bytes, so use a relative path
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)
    return True


def connect(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port)).close()
    return True


def trace(pid: int) -> bool:
    if LIBC.ptrace(PTRACE_ATTACH, pid, 0, 0) != 0:
        return False
    os.waitpid(pid, 0)
    LIBC.ptrace(PTRACE_DETACH, pid, 0, 0)
    return True


def write(path: "Path | str") -> bool:
    """Create a file. The test checks whether it exists on the machine."""
    Path(path).write_text("attack")
    return False


def open_with(path: str, flags: int = os.O_WRONLY) -> bool:
    os.close(os.open(path, flags))
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
    os.link(HOME / "secret_key", WORKSPACE / "linked")
    return True


def plant(path: Path, target: Path) -> bool:
    """Create a symbolic link. The test checks whether Berth follows it."""
    path.symlink_to(target)
    return False


def call(name: str, *arguments: Any) -> bool:
    """Make a system call and close the file descriptor that it returns."""
    number = CALLS[name][os.uname().machine != "x86_64"]
    values = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *values)
    if result > 0 and name != "add_key":
        os.close(result)
    return bool(result >= 0)


def count_events() -> bool:
    """Count the clock events of all processes on one processor."""
    attributes = struct.pack("=IIQ48x", 1, 64, 0)
    return call("perf_event_open", attributes, -1, 0, -1, 0)


def in_child(attack: Callable[[], object]) -> bool:
    """Return whether the attack succeeds in a child process."""
    pid = os.fork()
    if pid == 0:
        status = 1
        Path("/proc/self/oom_score_adj").write_text("1000")  # the kernel kills the child first
        try:
            status = 0 if attack() else 1
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def enter_namespaces(pid: int) -> bool:
    return bool(LIBC.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), 0) == 0)


def open_by_handle() -> bool:
    """Open a directory by its file handle instead of its path, to search for the machine's files."""
    handle, mount_id = ctypes.create_string_buffer(struct.pack("=I132x", 128)), ctypes.c_int()
    if LIBC.name_to_handle_at(-100, str(WORKSPACE).encode(), handle, ctypes.byref(mount_id), 0) != 0:
        return False
    return bool(LIBC.open_by_handle_at(os.open(WORKSPACE, os.O_RDONLY), handle, os.O_RDONLY) >= 0)


def create_device() -> bool:
    os.mknod(WORKSPACE / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    return True


def change_clock() -> bool:
    """Set the status of the clock to its current value."""
    clock = ctypes.create_string_buffer(208)
    LIBC.adjtimex(clock)
    struct.pack_into("=I", clock, 0, SET_STATUS)
    return bool(LIBC.adjtimex(clock) >= 0)


def change_network() -> bool:
    """Set the flags of the loopback interface to their current value."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = fcntl.ioctl(any_socket, GET_FLAGS, struct.pack("16s16x", b"lo"))
        fcntl.ioctl(any_socket, SET_FLAGS, flags)
    return True


def listen(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
    return True


def open_raw_socket() -> bool:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return True


def connect_abstract() -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + FACTS["abstract"])
    return True


def run_as_owner() -> bool:
    """Run a setuid program that belongs to root."""
    with subprocess.Popen(
        ["su"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        status = ""
        while not status.startswith("Name:\tsu\n"):  # the kernel closes Python's pipe before it is done
            status = Path(f"/proc/{process.pid}/status").read_text()
        with suppress(PermissionError):
            process.kill()
    effective = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[2]
    return effective == "0"


def open_any(*paths: str, flags: int = os.O_WRONLY) -> bool:
    for path in paths:
        try:
            return open_with(path, flags)
        except OSError:
            continue
    return False


def open_device() -> bool:
    """Open a device that only root may open: a loop device, memory or a disk."""
    disks = [line.split()[3] for line in Path("/proc/partitions").read_text().splitlines()[2:]]
    return open_any(*(f"/dev/{name}" for name in ("loop-control", "mem", *disks)), flags=os.O_RDONLY)


def fork_many() -> bool:
    """Start more processes than the pod may have."""
    children: list[int] = []
    try:
        while len(children) < FACTS["too_many"]:
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return True


def leave_process() -> bool:
    """Start a process that does not end with the pod. The test checks whether it still runs."""
    pause = "import signal; signal.pause()"
    subprocess.Popen([sys.executable, "-c", pause, FACTS["left"]], start_new_session=True)
    return False


def take_memory() -> bool:
    return bool(b"x" * FACTS["too_much"] * MIB)


def fill_file(directory: str) -> bool:
    descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    return sum(os.write(descriptor, bytes(MIB)) for _ in range(FACTS["too_much"])) == FACTS["too_much"] * MIB


def limit_files() -> Iterator[str]:
    """Yield the files that would set the pod's memory limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            yield f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"
        elif not controllers:
            yield f"/sys/fs/cgroup{path}/memory.max"


def reserve_disk() -> bool:
    descriptor = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
    os.posix_fallocate(descriptor, 0, FACTS["too_much"] * MIB)
    os.close(descriptor)
    return True


def read_kernel_log() -> bool:
    return LIBC.klogctl(READ_ALL, ctypes.create_string_buffer(8192), 8192) > 0 or read_some("/dev/kmsg")


def read_some(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return bool(os.read(descriptor, 8192))
    finally:
        os.close(descriptor)


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
    "trace another pod": lambda: trace(FACTS["pids"]["victim"]),
    "write to the machine's /tmp": lambda: write(FACTS["tmp"]),
    "write to the machine's /dev/shm": lambda: write(FACTS["shm"]),
    "write to /usr": lambda: write(FACTS["usr"]),
    "find another pod's shared memory": find_memory,
    "read the kernel's log": read_kernel_log,
    "change the core pattern": lambda: open_with("/proc/sys/kernel/core_pattern"),
    "mount a file system": lambda: mount(os.environ["BERTH_POD_DIR"]),
    "become root": become_root,
    "link to a file of Berth": link_to_secret,
    "create a user namespace": lambda: run("unshare", "--user", "true"),
    "connect to a port of the machine": lambda: connect(FACTS["port"]),
    "connect to an abstract socket of the machine": connect_abstract,
    "trace its own shim": lambda: trace(os.getppid()),
    "write to a terminal of the machine": lambda: open_with(FACTS["terminal"]),
    "open a device of the machine": open_device,
    "create a device node": create_device,
    "run a setuid program as its owner": run_as_owner,
    "change a setting in /sys": lambda: open_with("/sys/class/net/lo/ifalias"),
    "change the clock": change_clock,
    "change a network interface": change_network,
    "open a raw socket": open_raw_socket,
    "listen on a privileged port": lambda: listen(ECHO_PORT),
    "change its root directory": lambda: in_child(lambda: LIBC.chroot(b"/") == 0),
    "enter the namespaces of another pod": lambda: in_child(
        lambda: enter_namespaces(FACTS["pids"]["victim"])
    ),
    "open files by their handles": open_by_handle,
    "load a BPF program or map": lambda: call("bpf", CREATE_MAP, struct.pack("=IIII56x", 2, 4, 4, 1), 72),
    "count events of other processes (perf)": count_events,
    "use the kernel's keyrings": lambda: call("add_key", b"user", b"attack", b"key", 3, PROCESS_KEYRING),
    "use io_uring": lambda: call("io_uring_setup", 1, bytes(120)),
    "use userfaultfd": lambda: call("userfaultfd", os.O_CLOEXEC | USER_MODE_ONLY),
    "have Berth read a file through a link": lambda: plant(HOME / "run" / "logs" / "planted", SECRET),
    "learn the time of a file through a link": lambda: plant(WORKSPACE / ".berth-checkpoint", SECRET),
    "have Berth delete a file through a link": lambda: plant(WORKSPACE / "to-delete", HOME),
    "own a file of Berth through a link": lambda: plant(WORKSPACE / "to-own", SECRET),
    "leave a process behind": leave_process,
    "start more processes than its limit": fork_many,
    "take more memory than its limit in a child": lambda: in_child(take_memory),
    "fill /dev/shm beyond its memory limit": lambda: in_child(lambda: fill_file("/dev/shm")),
    "raise its own limits": lambda: open_any(*limit_files()),
    "fill the disk of the node": reserve_disk,
}


def attempt(attack: Callable[[], bool]) -> bool:
    try:
        return attack()
    except OSError:
        return False


print(json.dumps([name for name, attack in ATTACKS.items() if attempt(attack)]), flush=True)
if take_memory():
    print("survived")
