"""Namespaces of an enclosed pod, which bubblewrap creates.

The pod's command is a child of the shim, so its exit status and signals are the same as without an enclosure.
"""

from __future__ import annotations

import os

from pools.runtimes.shim.enclosure.builder import Builder
from pools.runtimes.shim.enclosure.mounts import Mounts
from pools.runtimes.shim.enclosure.shared_memory import SharedMemory

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from collections.abc import Sequence
    from ctypes import CDLL

KILLED = "bubblewrap was killed"
_NEW_NS, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 24, 38, 22
_SECCOMP_MODE_FILTER, _INSTRUCTION_BYTES = 2, 8
_CAPABILITIES = 64  # capability numbers are lower than this


class Namespaces:
    """Namespaces that `command` builds. `uid` is the pod's user, or 0 to keep the shim's user.

    `pids` are bubblewrap's processes, and `errors` is a file for its output. `call_filter` filters system
    calls, unless it is empty. `cause` says why the pod must not start, or is empty. `directory` is the
    image's working directory. `prepared` is an enclosure that only lacks the mounts in `own`.
    """

    is_container = False

    def __init__(
        self, command: list[str], uid: int, groups: list[int], errors: str, memory: SharedMemory | None,
        call_filter: bytes = b"", prepared: Builder | None = None, own: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.command, self.uid, self.groups, self.errors, self.memory = command, uid, groups, errors, memory
        self.call_filter = call_filter
        self.pids: frozenset[int] = frozenset()
        self.init = 0  # process ID of the first process inside the namespaces
        self.cause, self.directory = "", ""
        self._builder, self._own = prepared, own

    def launch(self) -> str:
        """Start bubblewrap in the background. Return an error message or ""."""
        if self.memory:
            try:
                self.memory.open()
            except OSError as error:
                return f"the pod's /dev/shm could not be created: {error}"
        if self._builder is None:
            errors = os.open(self.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._builder = Builder(self.command, errors)
        return ""

    @property
    def is_built(self) -> bool:
        return self._builder is not None and self._builder.init != 0

    def wait(self) -> str:
        """Wait until bubblewrap has built the namespaces. Return an error message or ""."""
        if self._builder is not None:
            if not self.is_built and not self._builder.wait():
                return f"the pod's enclosure could not be built: {self._last_error()}"
            self.init, self.pids = self._builder.init, self._builder.pids
            self._own = ()  # the first process of the pod has been forked and adds these mounts itself
        return ""

    def complete(self, command: list[str], env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """Return the command and environment variables unchanged, because the pod has no image."""
        return command, env

    def enter(self, libc: CDLL, init: int) -> None:
        """Enter the namespaces of the process `init`. The PID namespace applies only to child processes."""
        import ctypes

        mounts = Mounts(libc, self._own)
        mounts.open()
        kinds = _NEW_NS | _NEW_UTS | _NEW_IPC | _NEW_PID | (0 if self.uid else _NEW_USER)
        if libc["setns"](os.pidfd_open(init), kinds) != 0:  # `os` has no setns before Python 3.12
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        mounts.attach()

    def drop_privileges(self, libc: CDLL) -> None:
        """Switch to the pod's user without capabilities, and prevent the process from gaining any."""
        for capability in range(_CAPABILITIES):
            if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                break  # the kernel has no capability with this number
        if self.uid:
            os.setgroups(self.groups)
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise RuntimeError("the kernel does not support no_new_privs")
        if self.call_filter:
            self._filter_calls(libc)

    def _filter_calls(self, libc: CDLL) -> None:
        import ctypes

        program = ctypes.create_string_buffer(self.call_filter, len(self.call_filter))
        length = len(self.call_filter) // _INSTRUCTION_BYTES
        described = (ctypes.c_uint64 * 2)(length, ctypes.addressof(program))  # the C struct sock_fprog
        if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"system calls cannot be filtered: {os.strerror(number)}")

    def end(self) -> None:
        """Do nothing, because there is no container."""

    def close(self) -> None:
        """Delete the pod's shared memory, unless other pods use it."""
        if self.memory:
            self.memory.close()

    def _last_error(self) -> str:
        if self._builder and self._builder.was_killed:
            return KILLED
        with open(self.errors, "rb") as file:
            lines = file.read()[-1000:].decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "bubblewrap wrote no error"
