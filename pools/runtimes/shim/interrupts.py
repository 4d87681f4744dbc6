"""Detect requests to stop a pod whose command has not started yet."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import select


class Interrupted(Exception):
    """Raised if the pod must not start. `cause` is stored in the exit record."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class Interrupts:
    """File descriptors that report a stop record, a signal, or the anchor process's end."""

    def __init__(self, directory: str, control: int, signals: int, anchor: int | None) -> None:
        self._stop = f"{directory}/stop"
        self._control, self._signals, self._anchor = control, signals, anchor

    def wait(self, seconds: float, other: int = -1, interruptible: bool = True) -> None:
        """Wait for `seconds`, or until the descriptor `other` is readable.

        Raises Interrupted if the pod must not start. The stop record is not deleted, so that the shim can
        read it again later.
        """
        poller = select.poll()
        own = (self._control, self._signals, self._anchor) if interruptible else ()
        for fd in (*own, other):
            if fd is not None and fd >= 0:
                poller.register(fd, select.POLLIN)
        if not interruptible:
            poller.poll(max(seconds, 0.0) * 1000)
            return
        if os.path.exists(self._stop):
            raise Interrupted("stopped")
        ready = dict(poller.poll(max(seconds, 0.0) * 1000))
        if self._signals in ready and signal.SIGTERM in os.read(self._signals, 4096):
            raise Interrupted("host_stopped")
        if self._anchor in ready:
            raise Interrupted("host_stopped")
        if self._control in ready:
            os.read(self._control, 4096)
            self.wait(0)
