"""A proxy for a registry that stops sending in the middle of an image."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.images.registry import Registry


@dataclass
class Proxy:
    """A proxy that sends `after` bytes of responses, sets `is_stalled` and waits for `release`."""

    listener: socket.socket
    target: str
    after: int
    is_stalled: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    _sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = self.listener.accept()
                host, port = self.target.split(":")
                server = socket.create_connection((host, int(port)))
                threading.Thread(target=_copy, args=(client, server), daemon=True).start()
                threading.Thread(target=_copy, args=(server, client, self._pause), daemon=True).start()

    def _pause(self, size: int) -> None:
        with self._lock:
            self._sent += size
            is_enough = self._sent >= self.after
        if is_enough:
            self.is_stalled.set()
            self.release.wait()


def _send_at_once(size: int) -> None:
    pass


def _copy(source: socket.socket, target: socket.socket, pause: Callable[[int], None] = _send_at_once) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            pause(len(data))
            target.sendall(data)
    for side in (source, target):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
        side.close()


@contextmanager
def stalling_proxy(registry: Registry, after: int) -> Iterator[Proxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(listener, registry.address, after)
        threading.Thread(target=proxy.serve, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.release.set()
            listener.shutdown(socket.SHUT_RDWR)
