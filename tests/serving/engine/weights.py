"""Real weight transfers between two engines."""

import hashlib
import socket
import struct
import threading
from dataclasses import dataclass, field

RENDEZVOUS_SECONDS = 60.0
SENDER, RECEIVER = 0, 1


class Failed(Exception):
    """Raised if a copy fails. The engine responds with the message."""


@dataclass
class Weights:
    """Weights of an engine. Responses are computed with `held`. `version` is the reported version."""

    held: bytes = b"weights of version 1"
    version: str | None = "1"
    groups: dict[str, tuple[int, socket.socket]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.held).hexdigest()

    def join(self, name: str, address: str, port: int, rank: int, size: int) -> None:
        """Connect at the sender's port. Fail if the other side does not connect in time."""
        if size != 2 or rank not in {SENDER, RECEIVER}:
            raise Failed(f"a group of two has no rank {rank} of {size}")
        if name in self.groups:
            raise Failed(f"Group {name} exists already")
        try:
            line = _accept(address, port) if rank == SENDER else _connect(address, port)
        except OSError as error:
            raise Failed(f"Failed to init group: {error}") from None
        self.groups[name] = rank, line

    def transfer(self, name: str) -> None:
        """Transfer the weights. The group always ends with the transfer."""
        if name not in self.groups:
            raise Failed(f"Group {name} not in _weights_send_group list.")
        rank, line = self.groups.pop(name)
        try:
            if rank == SENDER:
                line.sendall(struct.pack("!I", len(self.held)) + self.held)
                _read_exactly(line, 1)
            else:
                (length,) = struct.unpack("!I", _read_exactly(line, 4))
                received = _read_exactly(line, length)
                with self.lock:
                    self.held = received
                line.sendall(b".")
        except OSError as error:
            raise Failed(f"Failed to send weights: {error}.") from None
        finally:
            line.close()


def _accept(address: str, port: int) -> socket.socket:
    with socket.create_server((address, port)) as listener:
        listener.settimeout(RENDEZVOUS_SECONDS)
        line, _ = listener.accept()
    line.settimeout(RENDEZVOUS_SECONDS)
    return line


def _connect(address: str, port: int) -> socket.socket:
    clock = threading.Event()
    for _ in range(int(RENDEZVOUS_SECONDS / 0.05)):
        try:
            return socket.create_connection((address, port), timeout=RENDEZVOUS_SECONDS)
        except ConnectionRefusedError:
            clock.wait(0.05)
    raise ConnectionRefusedError("the other engine never connected")


def _read_exactly(line: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        part = line.recv(count - len(got))
        if not part:
            raise ConnectionResetError("the other engine disconnected")
        got += part
    return bytes(got)
