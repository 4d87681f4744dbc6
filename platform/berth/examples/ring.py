"""Ring all-reduce that gives all ranks bitwise identical sums."""

import select
import socket
from collections.abc import Sequence

import numpy as np

from berth.examples.network import Array

Address = tuple[str, int]
PATIENCE, PATIENCE_TO_FORM = 30.0, 5.0


class Ring:
    """Connections to the next rank and from the previous rank.

    Any failure raises ConnectionError and closes both connections, so that it spreads around the ring.
    """

    def __init__(
        self, listener: socket.socket, addresses: Sequence[Address], position: int, epoch: int
    ) -> None:
        self.size, self.position = len(addresses), position
        self._next: socket.socket | None = None
        self._before: socket.socket | None = None
        if self.size == 1:
            return
        try:
            host, port = addresses[(position + 1) % self.size]
            self._next = socket.create_connection((host, port), timeout=PATIENCE_TO_FORM)
            self._next.sendall(epoch.to_bytes(8, "big"))
            self._before = _accept(listener, epoch)
        except OSError as error:
            self.close()
            raise ConnectionError(f"the ring does not close: {error}") from error
        for sock in (self._next, self._before):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)

    def sum(self, vector: Array) -> Array:
        """Return the sum of all ranks' vectors. Chunks circulate once for summing and once for sharing."""
        if self.size == 1:
            return vector
        chunks = [chunk.copy() for chunk in np.array_split(vector, self.size)]
        try:
            for turn in range(self.size - 1):
                ours, theirs = (self.position - turn) % self.size, (self.position - turn - 1) % self.size
                chunks[theirs] += self._exchange(chunks[ours], len(chunks[theirs]))
            for turn in range(self.size - 1):
                ours, theirs = (self.position + 1 - turn) % self.size, (self.position - turn) % self.size
                chunks[theirs] = self._exchange(chunks[ours], len(chunks[theirs]))
        except OSError as error:
            self.close()
            raise ConnectionError(f"the ring broke: {error}") from error
        return np.concatenate(chunks)

    def close(self) -> None:
        for sock in (self._next, self._before):
            if sock is not None:
                sock.close()

    def _exchange(self, chunk: Array, count: int) -> Array:
        """Send and receive simultaneously: if every rank sent first, full buffers would block all ranks."""
        assert self._next is not None
        assert self._before is not None
        out, received = memoryview(chunk.tobytes()), bytearray()
        while out or len(received) < count * 8:
            wants = [self._before] if len(received) < count * 8 else []
            readable, writable, _ = select.select(wants, [self._next] if out else [], [], PATIENCE)
            if not readable and not writable:
                raise TimeoutError("no neighbour is responding")
            if writable:
                out = out[self._next.send(out) :]
            if readable:
                part = self._before.recv(count * 8 - len(received))
                if not part:
                    raise ConnectionError("the previous rank is gone")
                received += part
        return np.frombuffer(bytes(received), dtype=np.float64)


def _accept(listener: socket.socket, epoch: int) -> socket.socket:
    """Accept the previous rank of this ring; close connections from an earlier ring."""
    listener.settimeout(PATIENCE_TO_FORM)
    while True:
        sock, _ = listener.accept()
        sock.settimeout(PATIENCE_TO_FORM)
        if int.from_bytes(sock.recv(8, socket.MSG_WAITALL), "big") == epoch:
            return sock
        sock.close()
