"""A proxy that drops responses after the server has sent them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

HEAD_END = b"\r\n\r\n"


class LossyProxy:
    """Forwards every request, but drops the first `losses` responses and closes their connections."""

    def __init__(self, upstream: str, losses: int) -> None:
        parts = urlsplit(upstream)
        self._upstream = (str(parts.hostname), int(parts.port or 80))
        self._losses = losses
        self.dropped = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                self._carry(client)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _carry(self, client: socket.socket) -> None:
        request = read_message(client)
        if not request:
            return
        with socket.create_connection(self._upstream) as upstream:
            upstream.sendall(request.replace(b"Connection: keep-alive", b"Connection: close"))
            answer = b"".join(iter(lambda: upstream.recv(65_536), b""))
        if self.dropped < self._losses:
            self.dropped += 1
            return
        client.sendall(answer)


def read_message(connection: socket.socket) -> bytes:
    data = b""
    while HEAD_END not in data:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(HEAD_END)
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    left = int(lengths[0].partition(b":")[2]) - len(body) if lengths else 0
    while left > 0:
        piece = connection.recv(65_536)
        data, left = data + piece, left - len(piece)
    return data


@contextmanager
def run_lossy_proxy(upstream: str, losses: int) -> Iterator[LossyProxy]:
    proxy = LossyProxy(upstream, losses)
    serving = threading.Thread(target=proxy.serve, daemon=True)
    serving.start()
    try:
        yield proxy
    finally:
        proxy.close()
        serving.join(timeout=5)
