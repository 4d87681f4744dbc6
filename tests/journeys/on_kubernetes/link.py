"""A TCP proxy in front of an API server that simulates failures of networks and servers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Link:
    """A proxy for the server on `upstream`, a port on loopback."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._passes = threading.Event()
        self._passes.set()
        self._is_rejecting = False
        self.port = 0

    def restore(self) -> None:
        """End the failure and forward all data again."""
        self._is_rejecting = False
        self._passes.set()

    def cut(self) -> None:
        """Break all connections, but allow new ones."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def reject(self) -> None:
        """Break all connections, and reject new ones until `restore`."""
        self._is_rejecting = True
        self.cut()

    def stop_responding(self) -> None:
        """Accept connections but forward no data until `restore`."""
        self._passes.clear()

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                if self._is_rejecting:
                    client.close()
                else:
                    threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._upstream)) as server:
            with self._lock:
                self._sockets |= {client, server}
            back = threading.Thread(target=self._pass_on, args=(server, client), daemon=True)
            back.start()
            self._pass_on(client, server)
            back.join()
            with self._lock:
                self._sockets -= {client, server}

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._passes.wait()
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def link_to(upstream: int, address: str = "127.0.0.1") -> Iterator[Link]:
    """Forward connections to this address to a port on loopback."""
    link = Link(upstream)
    with socket.create_server((address, 0), backlog=128) as listener:
        link.port = int(listener.getsockname()[1])
        threading.Thread(target=link.serve, args=(listener,), daemon=True).start()
        try:
            yield link
        finally:
            link.restore()
            link.cut()
            listener.shutdown(socket.SHUT_RDWR)
