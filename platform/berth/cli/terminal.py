"""Connect this terminal, or standard input and output, to a command in a pod."""

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from berth.cli.printing.text import print_message
from berth.client.channels import CHUNK, CREDIT, ERRORS, OUTPUT, STATUS, Terminal

if TYPE_CHECKING:
    from berth.client.sync.workloads.channels import Channel


def describe_terminal() -> Terminal:
    """Return the terminal's size and type."""
    rows, columns = _window_size()
    return Terminal(rows, columns, os.environ.get("TERM") or "xterm-256color")


def _window_size() -> tuple[int, int]:
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(fd)
            if rows and columns:
                return rows, columns
    return 24, 80


def run_interactively(channel: "Channel", *, sends_input: bool, terminal: Terminal | None) -> int:
    """Connect the terminal to the command until the command ends. Return its exit code.

    `terminal` is None if the channel was opened without a terminal.
    """
    source = _Input(channel, sends_input, terminal)
    with _raw_mode(terminal is not None and sends_input), _watch_size_changes(source if terminal else None):
        threading.Thread(target=source.run, daemon=True).start()
        while True:
            kind, payload = channel.receive()
            if kind == CREDIT:
                source.wake()
            elif kind in (OUTPUT, ERRORS):
                _write(1 if kind == OUTPUT else 2, payload)
            elif kind == STATUS:
                break
    if channel.failure:
        print_message(channel.failure)
    return channel.exit_code or 0


class _Input:
    """Thread that sends standard input and terminal resizes to the command."""

    def __init__(self, channel: "Channel", sends_input: bool, terminal: Terminal | None) -> None:
        self._channel, self._is_open, self._terminal = channel, sends_input, terminal
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def wake(self) -> None:
        """Make the thread check the send window and the terminal's size again.

        Safe to call from signal handlers.
        """
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def run(self) -> None:
        if not self._is_open:
            self._channel.end_input()
        while True:
            self._send_new_size()
            reads = self._is_open and self._channel.window > 0
            ready, _, _ = select.select([self._wake_read, *([0] if reads else [])], [], [])
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            if 0 in ready:
                self._send(min(CHUNK, self._channel.window))

    def _send(self, limit: int) -> None:
        try:
            data = os.read(0, limit)
        except OSError:
            data = b""
        self._send_new_size()  # send the new size before input that was typed after the change
        if data:
            self._channel.send_input(data)
        else:
            self._is_open = False
            self._channel.end_input()

    def _send_new_size(self) -> None:
        if self._terminal is None:
            return
        terminal = describe_terminal()
        if terminal != self._terminal:
            self._terminal = terminal
            self._channel.resize(terminal.rows, terminal.columns)


@contextlib.contextmanager
def _raw_mode(enabled: bool) -> Iterator[None]:
    """Keep the terminal in raw mode within the block, so that keys such as Ctrl-C reach the command."""
    if not enabled:
        yield
        return
    before = termios.tcgetattr(0)
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        tty.setraw(0, termios.TCSADRAIN)  # keep input that was typed ahead
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def _watch_size_changes(source: _Input | None) -> Iterator[None]:
    if source is None:
        yield
        return

    def wake_source(*_: Any) -> None:
        source.wake()

    previous = signal.signal(signal.SIGWINCH, wake_source)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, previous)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
