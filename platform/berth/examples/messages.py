"""Messages between training processes, with a small JSON header and a binary body."""

import json
import socket
import struct
from typing import Any

_LENGTHS = struct.Struct("!II")


def send(sock: socket.socket, header: dict[str, Any], body: bytes = b"") -> None:
    text = json.dumps(header).encode()
    sock.sendall(_LENGTHS.pack(len(text), len(body)) + text + body)


def receive(sock: socket.socket) -> tuple[dict[str, Any], bytes]:
    text_length, body_length = _LENGTHS.unpack(_receive_exactly(sock, _LENGTHS.size))
    header: dict[str, Any] = json.loads(_receive_exactly(sock, text_length))
    return header, _receive_exactly(sock, body_length)


def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("the other side closed the connection")
        parts += part
    return bytes(parts)
