"""A TCP proxy that stops in the middle of a long response until it is released."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

STOP_AFTER = 1_000_000  # number of bytes of one response


@dataclass
class SlowProxy:
    """A proxy for the server at `upstream` on loopback."""

    upstream: int
    address: str = ""
    released: threading.Event = field(default_factory=threading.Event)

    def carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.upstream)) as server, suppress(OSError):
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            sent = 0
            while data := server.recv(65_536):
                client.sendall(data)
                sent += len(data)
                if sent > STOP_AFTER:
                    self.released.wait()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def slow_proxy(upstream: int) -> Iterator[SlowProxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = SlowProxy(upstream, f"127.0.0.1:{listener.getsockname()[1]}")

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=proxy.carry, args=(client,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.released.set()
            listener.shutdown(socket.SHUT_RDWR)
