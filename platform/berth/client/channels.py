"""Wire format of the channels to commands in pods.

A frame is one binary WebSocket message: a byte for the kind, then the payload. At most WINDOW bytes may be
unacknowledged in each direction.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from berth.client.config import Settings
from berth.client.errors import Unreachable, error_for_status

INPUT, OUTPUT, ERRORS, STATUS, RESIZE, START, CREDIT, END, SIGNAL = range(9)
WINDOW = 256 * 1024
CHUNK = 32 * 1024  # maximum number of input bytes in one frame
OPEN_SECONDS = 30.0
# A request contains one of `command`, `copy_to`, `copy_from`, `connect`, `ssh` and `sftp`, with its options.
Request = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command in a pod. After a signal, the exit code is 128 plus the signal's number."""

    exit_code: int
    output: bytes = field(repr=False)
    errors: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Terminal:
    rows: int = 24
    columns: int = 80
    type: str = "xterm-256color"


def connection_url(settings: Settings, workload_id: str, pod: str | None) -> str:
    query = "" if pod is None else f"?pod={quote(pod, safe='')}"
    return f"ws{settings.address.removeprefix('http')}/ws/workloads/{workload_id}/exec{query}"


def connection_options(settings: Settings) -> dict[str, Any]:
    """Return the options for a WebSocket. Connections to the local machine bypass proxies."""
    return {
        "additional_headers": {"Authorization": f"Bearer {settings.token}"} if settings.token else {},
        "origin": settings.address,
        "user_agent_header": "berth-client",
        "compression": None,
        "max_size": 4 * WINDOW,
        "max_queue": None,  # no maximum: flow control already bounds the queue
        "open_timeout": OPEN_SECONDS,
        "proxy": None if settings.is_local else True,
    }


def command_request(command: Sequence[str], terminal: Terminal | None = None) -> Request:
    """Return the request to start a command in `terminal`. Without a terminal, the command uses pipes."""
    size = terminal and {"rows": terminal.rows, "columns": terminal.columns, "type": terminal.type}
    return {"command": list(command), "terminal": size}


def encode_start(request: Request) -> bytes:
    return bytes((START,)) + json.dumps(request).encode()


def encode_size(rows: int, columns: int) -> bytes:
    return bytes((RESIZE,)) + json.dumps({"rows": rows, "columns": columns}).encode()


def encode_credit(count: int) -> bytes:
    return bytes((CREDIT,)) + count.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Status:
    """Final status of a command.

    `failure` is the reason why the command could not be started, or empty. `signal` is the signal that killed
    the command, such as KILL, or empty.
    """

    exit_code: int
    failure: str
    signal: str


def parse_status(payload: bytes) -> Status:
    """Parse the final status message of a command. Raises Rejected or Unreachable."""
    status = json.loads(payload)
    message = str(status.get("error") or "")
    if "exit_code" in status:
        return Status(int(status["exit_code"]), message, str(status.get("signal") or ""))
    if "status" in status:
        raise error_for_status(int(status["status"]), {"detail": message})
    raise Unreachable(message)
