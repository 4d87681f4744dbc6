"""Tests for the system call filter of pods."""

import errno
import re
import struct
from pathlib import Path

import pytest

from pools.runtimes.enclosure import seccomp
from pools.runtimes.enclosure.seccomp import (
    CHECKED,
    CLONE,
    CLONE3,
    DENIED,
    PERSONALITY,
    SOCKET,
    UNSHARE,
    build_program,
    find_filter_program,
)
from tests.contracts.pods import LocalStage, ended, order

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ALLOWED, KILLED = "allowed", "killed"
NEW_USER, NEW_THREAD = 0x10000000, 0x3D0F00  # flags of `unshare --user` and of a thread


def decide(machine: str, number: int, argument: int = 0, architecture: int | None = None) -> str:
    """Evaluate the filter as the kernel does. Return "allowed", "killed" or the name of the error."""
    architecture = ARCHITECTURES[machine][1] if architecture is None else architecture
    data = struct.pack("=IIQ6Q", number, architecture, 0, argument, *(0,) * 5)
    instructions = list(struct.iter_unpack("=HBBI", build_program(machine)))
    position = loaded = 0
    while True:
        code, if_true, if_false, operand = instructions[position]
        position += 1
        if code == 0x20:
            loaded = struct.unpack_from("=I", data, operand)[0]
        elif code == 0x06:
            return _outcome(operand)
        else:
            jump = {0x15: loaded == operand, 0x35: loaded >= operand, 0x45: bool(loaded & operand)}[code]
            position += if_true if jump else if_false


def _outcome(operand: int) -> str:
    if operand & 0xFFFF0000 == 0x00050000:
        return errno.errorcode[operand & 0xFFFF]
    return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}[operand]


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_filtered_syscall_numbers_match_the_kernel(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("the kernel's headers are not installed")
    column = ARCHITECTURES[machine][0]
    names = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text()))
    for name, numbers in {**DENIED, **CHECKED}.items():
        number = numbers[column]
        assert names.get(name) == (None if number is None else str(number)), name


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_filter_denies_the_listed_syscalls_and_allows_all_others(machine: str) -> None:
    column = ARCHITECTURES[machine][0]
    denied = {numbers[column] for numbers in DENIED.values()} - {None}
    checked = {numbers[column] for numbers in CHECKED.values()}
    for number in range(500):
        if number not in checked:
            assert decide(machine, number) == ("EPERM" if number in denied else ALLOWED), number


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_some_syscalls_are_denied_only_with_certain_arguments(machine: str) -> None:
    column = ARCHITECTURES[machine][0]
    expected = {
        (CLONE, NEW_THREAD): ALLOWED, (CLONE, NEW_USER | 17): "EPERM", (CLONE3, 0): "ENOSYS",
        (UNSHARE, 0x400): ALLOWED, (UNSHARE, NEW_USER): "EPERM", (UNSHARE, 0x80): "EPERM",
        (SOCKET, 2): ALLOWED, (SOCKET, 40): "EPERM",
        (PERSONALITY, 0x40000): ALLOWED, (PERSONALITY, 0xFFFFFFFF): ALLOWED, (PERSONALITY, 0x400000): "EPERM",
    }  # fmt: skip
    for (name, argument), outcome in expected.items():
        assert decide(machine, CHECKED[name][column], argument) == outcome, (name, argument)


def test_syscalls_of_other_architectures_cannot_bypass_the_filter() -> None:
    i386, mount = 0x40000003, 21
    assert decide("x86_64", mount, architecture=i386) == KILLED
    assert decide("x86_64", 0x40000000 | 165) == "ENOSYS"  # mount as an x32 call


# --- pods


# Threads, processes started in all ways, shared memory, and a process that is traced by its parent.
PROGRAM = """
import ctypes, multiprocessing as mp, os, signal, subprocess, threading
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=4096)
block.close(); block.unlink()
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
child = mp.get_context("fork").Process(target=print, args=("fork",)); child.start(); child.join()
subprocess.run(["echo", "spawn"], check=True)
libc = ctypes.CDLL(None, use_errno=True)
libc.personality(0x40000) == 0 and print("no randomization", flush=True)
traced = os.fork()
if traced == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(7)
os.waitpid(traced, 0)
libc.ptrace(7, traced, 0, 0)
print("traced", os.waitstatus_to_exitcode(os.waitpid(traced, 0)[1]), flush=True)
"""


def test_threads_child_processes_shared_memory_and_debuggers_work_under_the_filter(stage: LocalStage) -> None:
    assert (stage.runtime.isolation.seccomp, stage.runtime.isolation.seccomp_obstacle) == (True, "")
    stage.runtime.start(order("p-1", "python3", "-u", "-c", PROGRAM))
    report = ended(stage.runtime, "p-1")
    lines = stage.runtime.read_log("p-1", 0, 10_000).data.decode().splitlines()
    assert (report.exit_code, sorted(lines)) == (
        0, ["fork", "no randomization", "spawn", "thread", "traced 7"],
    )  # fmt: skip


def test_syscall_filter_is_off_only_if_disabled_explicitly(
    tmp_path: Path, stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = ("grep", "^Seccomp_filters", "/proc/self/status")
    monkeypatch.setenv("BERTH_SECCOMP", "off")
    unfiltered = LocalStage(tmp_path / "other" / "run").runtime
    assert (unfiltered.isolation.seccomp, unfiltered.isolation.seccomp_obstacle) == (
        False, "BERTH_SECCOMP is off.",
    )  # fmt: skip
    counts = []
    for runtime in (unfiltered, stage.runtime):
        runtime.start(order("p-1", *show))
        ended(runtime, "p-1")
        counts.append(int(runtime.read_log("p-1", 0, 1000).data.split()[1]))
    assert counts[1] == counts[0] + 1


def test_missing_kernel_support_for_filters_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seccomp, "INSTALLED_ACTIONS", tmp_path / "none")
    assert find_filter_program({}) == (b"", "The kernel does not support seccomp filters.")
