"""Executor process that runs calls one after another within the contexts of its plugins."""

import logging
import signal
import socket
import struct
import sys
from types import FrameType
from typing import Any

import cloudpickle

from berth.core.frames import Frame, packed, unpacked
from berth.worker import calls, session_ray
from pools.plugins.contexts import Hook, HookContexts
from pools.plugins.errors import HookFailed

LENGTH = struct.Struct(">Q")


def main(number: int) -> None:
    """Run calls until the worker closes its end of the socket pair. `number` is our file descriptor."""
    line = socket.socket(fileno=number)
    # Stopping a pod signals all its processes, but the worker decides when this process ends.
    signal.signal(signal.SIGTERM, _ignore_signal)
    signal.signal(signal.SIGINT, _ignore_signal)
    [(header, setup)] = unpacked(receive(line) or packed([({}, b"")]))
    if not header:
        return
    session_ray.connect()
    signal.signal(signal.SIGTERM, _ignore_signal)  # Ray installs its own handler
    plugins, instance = cloudpickle.loads(setup)
    entered = HookContexts(Hook.AROUND_PROCESS)
    try:
        while (message := receive(line)) is not None:
            [(_, payload)] = unpacked(message)
            outcome = _run(payload, plugins, instance, entered, header["most"])
            send(line, [({"kind": outcome.kind, "details": outcome.details}, outcome.data)])
            if outcome.kind == "interrupted":
                return
    finally:
        entered.leave()
        session_ray.disconnect()


def _run(payload: bytes, plugins: Any, instance: Any, entered: HookContexts, most: int) -> calls.Outcome:
    """Run a call. The first call enters the plugin contexts, after the environment variables are set."""
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            entered.enter(plugins, instance)
        except HookFailed as error:
            return calls.failed("PluginFailed", f"on node {instance.node_index}", error.__cause__ or error)
        return calls.run(payload, plugins, most)
    except KeyboardInterrupt:
        return calls.interrupted("its node was removed")
    finally:
        signal.signal(signal.SIGINT, _ignore_signal)
        sys.stdout.flush()


def send(line: socket.socket, frames: list[Frame]) -> None:
    message = packed(frames)
    line.sendall(LENGTH.pack(len(message)))
    line.sendall(message)


def receive(line: socket.socket) -> bytes | None:
    """Return one message, or None if the other side has closed the connection."""
    head = _receive_exactly(line, LENGTH.size)
    return None if head is None else _receive_exactly(line, LENGTH.unpack(head)[0])


def _receive_exactly(line: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        part = line.recv(min(size - len(received), 1 << 20))
        if not part:
            return None
        received += part
    return bytes(received)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Ignore a signal. SIG_IGN would be inherited by the processes that a function starts."""


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    main(int(sys.argv[1]))
