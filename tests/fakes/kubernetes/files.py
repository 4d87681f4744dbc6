"""Containers that keep the files of simulated pods and run scripts on this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import subprocess
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from pools.kubernetes.files.container import CONTAINER, MARK, ROOT
from tests.fakes.kubernetes.store import Object

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE = 0x82, 0x88
OUTPUT, ERRORS, STATUS = 1, 2, 3


class FakeFiles:
    """Directories in place of pod volumes. Scripts cannot see the processes of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, pod: str) -> Path:
        """Return the directory that the pod sees as `/berth/pod`."""
        path = self._place(pod) / "pod"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def are_copied(self, pod: str) -> bool:
        return (self._place(pod) / MARK.removeprefix(f"{ROOT}/")).exists()

    def run(self, pod: str, command: list[str]) -> tuple[int, bytes, bytes]:
        self.directory(pod)
        inside = [part.replace(ROOT, str(self._place(pod))).replace("/proc", "/nowhere") for part in command]
        finished = subprocess.run(inside, capture_output=True, check=False)
        return finished.returncode, finished.stdout, finished.stderr

    def _place(self, pod: str) -> Path:
        return self._root / pod


def keeps_files(pod: Object) -> bool:
    return any(each["name"] == CONTAINER for each in pod["spec"]["containers"])


def answer_exec(handler: BaseHTTPRequestHandler, result: tuple[int, bytes, bytes]) -> None:
    """Send the result of a command over a WebSocket and close it."""
    code, output, errors = result
    key = f"{handler.headers['Sec-WebSocket-Key']}{_GUID}".encode()
    handler.send_response(101)
    accept = base64.b64encode(hashlib.sha1(key, usedforsecurity=False).digest()).decode()
    for name, value in {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept,
        "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
    }.items():  # fmt: skip
        handler.send_header(name, value)
    handler.end_headers()
    cause = {"reason": "ExitCode", "message": str(code)}
    failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
    status = json.dumps({"status": "Success"} if code == 0 else failure).encode()
    for channel, data in ((OUTPUT, output), (ERRORS, errors), (STATUS, status)):
        for first in range(0, len(data), 32768):
            _send(handler, _BINARY, bytes((channel,)) + data[first : first + 32768])
    _send(handler, _CLOSE, b"")
    handler.close_connection = True


def _send(handler: BaseHTTPRequestHandler, opcode: int, payload: bytes) -> None:
    short = len(payload) < 126
    size = bytes((len(payload),)) if short else bytes((126,)) + struct.pack(">H", len(payload))
    handler.wfile.write(bytes((opcode,)) + size + payload)
