"""Ring all-reduce whose sums are bitwise identical on all ranks."""

import select
import socket
from collections.abc import Sequence

import numpy as np

from berth.examples.network import Array

Address = tuple[str, int]
EXCHANGE_SECONDS, FORM_SECONDS = 30.0, 5.0


class Ring:
    """Connections to the next rank and from the previous rank.

    Any failure raises ConnectionError and closes both connections, so that the failure spreads around the
    ring.
    """

    def __init__(
        self, listener: socket.socket, addresses: Sequence[Address], position: int, epoch: int
    ) -> None:
        self.size, self.position = len(addresses), position
        self._next: socket.socket | None = None
        self._previous: socket.socket | None = None
        if self.size == 1:
            return
        try:
            host, port = addresses[(position + 1) % self.size]
            self._next = socket.create_connection((host, port), timeout=FORM_SECONDS)
            self._next.sendall(epoch.to_bytes(8, "big"))
            self._previous = _accept(listener, epoch)
        except OSError as error:
            self.close()
            raise ConnectionError(f"the ring could not be formed: {error}") from error
        for sock in (self._next, self._previous):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)

    def sum(self, vector: Array) -> Array:
        """Return the sum of all ranks' vectors. Raises ConnectionError."""
        if self.size == 1:
            return vector
        chunks = [chunk.copy() for chunk in np.array_split(vector, self.size)]
        try:
            for round_index in range(self.size - 1):
                ours, theirs = (
                    (self.position - round_index) % self.size,
                    (self.position - round_index - 1) % self.size,
                )
                chunks[theirs] += self._exchange(chunks[ours], len(chunks[theirs]))
            for round_index in range(self.size - 1):
                ours, theirs = (
                    (self.position + 1 - round_index) % self.size,
                    (self.position - round_index) % self.size,
                )
                chunks[theirs] = self._exchange(chunks[ours], len(chunks[theirs]))
        except OSError as error:
            self.close()
            raise ConnectionError(f"the ring failed: {error}") from error
        return np.concatenate(chunks)

    def close(self) -> None:
        for sock in (self._next, self._previous):
            if sock is not None:
                sock.close()

    def _exchange(self, chunk: Array, count: int) -> Array:
        """Exchange chunks with both neighbours at the same time.

        If all ranks sent first, full buffers could block all of them.
        """
        assert self._next is not None
        assert self._previous is not None
        out, received = memoryview(chunk.tobytes()), bytearray()
        while out or len(received) < count * 8:
            readers = [self._previous] if len(received) < count * 8 else []
            readable, writable, _ = select.select(readers, [self._next] if out else [], [], EXCHANGE_SECONDS)
            if not readable and not writable:
                raise TimeoutError("no neighbour is responding")
            if writable:
                out = out[self._next.send(out) :]
            if readable:
                part = self._previous.recv(count * 8 - len(received))
                if not part:
                    raise ConnectionError("the previous rank closed the connection")
                received += part
        return np.frombuffer(bytes(received), dtype=np.float64)


def _accept(listener: socket.socket, epoch: int) -> socket.socket:
    """Accept a connection from the previous rank of this ring. Close connections from earlier rings."""
    listener.settimeout(FORM_SECONDS)
    while True:
        sock, _ = listener.accept()
        sock.settimeout(FORM_SECONDS)
        if int.from_bytes(sock.recv(8, socket.MSG_WAITALL), "big") == epoch:
            return sock
        sock.close()
