"""Executor process that runs calls sequentially within plugin contexts."""

import logging
import signal
import socket
import struct
import sys
from types import FrameType
from typing import Any

import cloudpickle

from berth.core.frames import Frame, pack_frames, unpack_frames
from berth.worker import calls, session_ray
from pools.plugins.contexts import Hook, HookContexts
from pools.plugins.errors import HookFailed

LENGTH = struct.Struct(">Q")


def main(number: int) -> None:
    """Run calls until the worker closes its end of the socket pair.

    `number` is the file descriptor of this process's end.
    """
    connection = socket.socket(fileno=number)
    # When a pod stops, all of its processes receive a signal. The worker decides when this process ends.
    signal.signal(signal.SIGTERM, _ignore_signal)
    signal.signal(signal.SIGINT, _ignore_signal)
    [(header, setup)] = unpack_frames(receive(connection) or pack_frames([({}, b"")]))
    if not header:
        return
    session_ray.connect()
    signal.signal(signal.SIGTERM, _ignore_signal)  # replaces the handler that Ray has installed
    plugins, instance = cloudpickle.loads(setup)
    entered = HookContexts(Hook.AROUND_PROCESS)
    try:
        while (message := receive(connection)) is not None:
            [(_, payload)] = unpack_frames(message)
            outcome = _run_call(payload, plugins, instance, entered, header["most"])
            send(connection, [({"kind": outcome.kind, "details": outcome.details}, outcome.data)])
            if outcome.kind == "interrupted":
                return
    finally:
        entered.leave()
        session_ray.disconnect()


def _run_call(
    payload: bytes, plugins: Any, instance: Any, entered: HookContexts, result_bytes_max: int
) -> calls.CallOutcome:
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            entered.enter(plugins, instance)
        except HookFailed as error:
            return calls.failed_outcome(
                "PluginFailed", f"on node {instance.node_index}", error.__cause__ or error
            )
        return calls.run(payload, plugins, result_bytes_max)
    except KeyboardInterrupt:
        return calls.interrupted_outcome("the node was removed")
    finally:
        signal.signal(signal.SIGINT, _ignore_signal)
        sys.stdout.flush()


def send(connection: socket.socket, frames: list[Frame]) -> None:
    message = pack_frames(frames)
    connection.sendall(LENGTH.pack(len(message)))
    connection.sendall(message)


def receive(connection: socket.socket) -> bytes | None:
    """Return one message, or None if the other side has closed the connection."""
    head = _receive_exactly(connection, LENGTH.size)
    return None if head is None else _receive_exactly(connection, LENGTH.unpack(head)[0])


def _receive_exactly(connection: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(min(size - len(received), 1 << 20))
        if not part:
            return None
        received += part
    return bytes(received)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Ignore a signal. Unlike SIG_IGN, this handler is not inherited by child processes."""


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    main(int(sys.argv[1]))
