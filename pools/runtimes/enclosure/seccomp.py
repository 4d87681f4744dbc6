"""System call filter for pods: a BPF program that the kernel runs before each system call.

It forbids the system calls that container runtimes forbid by default. Debuggers keep working, because a pod
may trace its own processes.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Mapping
from pathlib import Path

from pools.runtimes.enclosure.levels import SECCOMP_VARIABLE

INSTALLED_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")

# System call numbers on x86_64 and aarch64, or None if an architecture lacks the call.
DENIED: Mapping[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# System calls that are allowed depending on their first argument.
CLONE, CLONE3, PERSONALITY, SOCKET, UNSHARE = "clone", "clone3", "personality", "socket", "unshare"
CHECKED: Mapping[str, tuple[int, int]] = {
    CLONE: (56, 220),
    CLONE3: (435, 435),
    PERSONALITY: (135, 92),
    SOCKET: (41, 198),
    UNSHARE: (272, 97),
}
NEW_NAMESPACES = 0x7E020000  # flags for new mount, cgroup, UTS, IPC, user, PID and network namespaces
NEW_TIME_NAMESPACE = 0x80  # not usable with `clone`, where this bit is part of a signal number
VIRTUAL_MACHINE_SOCKETS = 40
PERSONALITIES = (
    0xFFFFFFFF,  # query
    0x0,  # Linux
    0x8,  # 32-bit Linux
    0x20000,  # Linux that reports version 2.6
    0x20008,  # 32-bit Linux that reports version 2.6
    0x40000,  # Linux without address randomization, for debuggers
)

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # first x32 system call number on x86_64
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16  # offsets of the values that the filter can read
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000

Instruction = tuple[int, int, int, int]  # operation code, jump if true, jump if false, and operand


def find_filter_program(environ: Mapping[str, str] = os.environ) -> tuple[bytes, str]:
    """Return (BPF program for this machine, ""), or (b"", reason) if filtering is off or not supported."""
    machine = os.uname().machine
    if environ.get(SECCOMP_VARIABLE) == "off":
        return b"", f"{SECCOMP_VARIABLE} is off."
    if machine not in _ARCHITECTURES:
        return b"", f"System calls cannot be filtered on the architecture {machine}."
    try:
        has_errors = "errno" in INSTALLED_ACTIONS.read_text().split()
    except OSError:
        has_errors = False
    return (
        (build_program(machine), "") if has_errors else (b"", "The kernel does not support seccomp filters.")
    )


def build_program(machine: str) -> bytes:
    """Return the BPF program in the kernel's binary format.

    A system call for a different architecture kills the process.
    """
    column, architecture = _ARCHITECTURES[machine]
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_IF_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    if machine == "x86_64":
        program += [(_IF_AT_LEAST, 0, 1, _X32), _error_instruction(errno.ENOSYS)]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            program += [(_IF_EQUAL, 0, 1, number), _error_instruction(errno.EPERM)]
    for name, checked in CHECKED.items():
        program += _check_argument(checked[column], _CHECKS[name])
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _error_instruction(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERROR | number)


def _check_argument(number: int, check: list[Instruction]) -> list[Instruction]:
    """Return instructions that apply `check` to the first argument of the system call `number`."""
    return [(_IF_EQUAL, 0, len(check) + 1, number), (_LOAD, 0, 0, _ARGUMENT), *check]


_PERMITTED = (_RETURN, 0, 0, _ALLOW)
_CHECKS: Mapping[str, list[Instruction]] = {
    CLONE: [(_IF_ANY_BIT, 0, 1, NEW_NAMESPACES), _error_instruction(errno.EPERM), _PERMITTED],
    # The filter cannot read the flags of `clone3`. Without this call, the C library uses `clone`.
    CLONE3: [_error_instruction(errno.ENOSYS)],
    PERSONALITY: [
        *(each for value in PERSONALITIES for each in ((_IF_EQUAL, 0, 1, value), _PERMITTED)),
        _error_instruction(errno.EPERM),
    ],
    SOCKET: [(_IF_EQUAL, 0, 1, VIRTUAL_MACHINE_SOCKETS), _error_instruction(errno.EPERM), _PERMITTED],
    UNSHARE: [
        (_IF_ANY_BIT, 0, 1, NEW_NAMESPACES | NEW_TIME_NAMESPACE),
        _error_instruction(errno.EPERM),
        _PERMITTED,
    ],
}
