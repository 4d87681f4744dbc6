"""HTTP agent on a Ray node. The cluster's secret authenticates its clients."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pools.runtimes.base import ChannelRejected, LogChunk, RuntimeFailure, StopNotice
from pools.runtimes.ray.node.copying import copy_between
from pools.runtimes.ray.node.pods import NodePods
from pools.runtimes.wire import (
    LOG_HEADER,
    THIS_INSTANCE,
    decode_pod_spec,
    encode_chunk_header,
    encode_isolation,
    encode_measurements,
    encode_report,
)

BODY_MAX_BYTES = 64 * 1024 * 1024
CHUNK_MAX = 4 * 1024 * 1024
IDLE_SECONDS = 60.0


class Agent(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], pods: NodePods, secret: str, obstacle: Callable[[], str]
    ) -> None:
        """Create the agent. `obstacle()` returns why Ray cannot run pods yet, or ""."""
        super().__init__(address, Handler)
        self.pods, self.serial_lock, self.obstacle = pods, threading.Lock(), obstacle
        self.closing = False
        self.expected = f"Bearer {secret}".encode()


class Handler(BaseHTTPRequestHandler):
    """Handler of the agent's POST requests. The path names a method. Bodies are JSON, except for logs."""

    server: Agent
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # send the body without waiting until the headers are acknowledged
    timeout = IDLE_SECONDS

    def do_POST(self) -> None:
        authorization = self.headers.get("Authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(authorization, self.server.expected):
            self.close_connection = True
            self._respond(401, b"missing or wrong cluster secret")
            return
        if self.server.closing:
            self.close_connection = True
            self._respond(503, b"this node is shutting down")
            return
        length = int(self.headers.get("Content-Length", "0"))
        if not 0 <= length <= BODY_MAX_BYTES:
            self.close_connection = True
            self._respond(413, b"request body too large")
            return
        try:
            body = json.loads(self.rfile.read(length) or b"{}")
            if self.path.strip("/") == "channel":
                self._open_channel(str(body["pod_id"]))
                return
            result = self._call(self.path.strip("/"), body)
        except ChannelRejected as rejection:
            self._respond(409, str(rejection).encode())
        except (KeyError, TypeError, ValueError) as error:
            self._respond(422, str(error).encode())
        except (RuntimeFailure, OSError) as error:
            self._respond(500, str(error).encode())
        else:
            if isinstance(result, LogChunk):
                self._respond(200, result.data, encode_chunk_header(result))
            elif isinstance(result, bytes):
                self._respond(200, result)
            else:
                self._respond(200, json.dumps(result).encode())

    def _open_channel(self, pod_id: str) -> None:
        with self.server.pods.open_channel(pod_id) as channel:
            self.close_connection = True
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "berth-channel")
            self.end_headers()
            copy_between(self.connection, channel)

    def _call(self, method: str, body: dict[str, Any]) -> Any:
        if method == "obstacle":
            return self.server.obstacle()
        if method in CONCURRENT:
            return CONCURRENT[method](self.server.pods, body)
        if method not in SERIAL:
            raise ValueError(f"unknown request: {method}")
        with self.server.serial_lock:
            return SERIAL[method](self.server.pods, body)

    def _respond(self, status: int, body: bytes, log: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if log:
            self.send_header(LOG_HEADER, log)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Suppress request logs, because Berth sends a request every second."""


def _get_reports(pods: NodePods, body: dict[str, Any]) -> Any:
    return {pod_id: encode_report(report) for pod_id, report in pods.get_reports(body["pod_ids"]).items()}


def _stop_pod(pods: NodePods, body: dict[str, Any]) -> None:
    notice = StopNotice(int(body["signal"]), int(body["lead_seconds"])) if "signal" in body else None
    pods.stop(body["pod_id"], int(body["grace_seconds"]), notice)


def _clear_pod(pods: NodePods, body: dict[str, Any]) -> None:
    pods.forget(body["pod_id"])
    pods.drop_log(body["pod_id"])


def _checkpointed_at(pods: NodePods, body: dict[str, Any]) -> str | None:
    saved = pods.checkpointed_at(body["workspace"])
    return saved.isoformat() if saved else None


def _read_log(pods: NodePods, body: dict[str, Any]) -> LogChunk:
    return pods.read_log(body["pod_id"], int(body["offset"]), min(int(body["limit"]), CHUNK_MAX))


def _read_log_times(pods: NodePods, body: dict[str, Any]) -> Any:
    return pods.read_log_times(body["pod_id"], int(body["start"]), int(body["end"]))


def _read_file(pods: NodePods, body: dict[str, Any]) -> bytes:
    offset, limit = int(body["offset"]), min(int(body["limit"]), CHUNK_MAX)
    return pods.read_file(body["pod_id"], body["path"], offset, limit)


def _list_retained_files(pods: NodePods, body: dict[str, Any]) -> Any:
    return asdict(pods.list_retained_files(body["pod_id"], body["workspace"], body["path"]))


def _read_retained_file(pods: NodePods, body: dict[str, Any]) -> bytes:
    offset, limit = int(body["offset"]), min(int(body["limit"]), CHUNK_MAX)
    return pods.read_retained_file(body["pod_id"], body["workspace"], body["path"], offset, limit)


def _read_volume_file(pods: NodePods, body: dict[str, Any]) -> bytes:
    offset, limit = int(body["offset"]), min(int(body["limit"]), CHUNK_MAX)
    return pods.read_volume_file(body["pod_id"], body["volume"], body["path"], offset, limit)


CONCURRENT: dict[str, Callable[[NodePods, dict[str, Any]], Any]] = {
    "log": _read_log,
    "log_times": _read_log_times,
    "files": lambda pods, body: asdict(pods.list_files(body["pod_id"], body["paths"])),
    "file": _read_file,
    "kept_files": _list_retained_files,
    "kept_file": _read_retained_file,
    "volume_changes": lambda pods, body: asdict(pods.list_volume_changes(body["pod_id"], body["volume"])),
    "volume_file": _read_volume_file,
    "tail": lambda pods, body: pods.tail_log(body["pod_id"], int(body["lines"])),
    "drop_workspace": lambda pods, body: pods.drop_workspace(body["workspace"]),
    "measure": lambda pods, body: encode_measurements(pods.measure(body["pod_ids"], [THIS_INSTANCE])),
}
SERIAL: dict[str, Callable[[NodePods, dict[str, Any]], Any]] = {
    "order": lambda pods, body: {"entrypoint": pods.entrypoint(decode_pod_spec(body))},
    "stop": _stop_pod,
    "look": _get_reports,
    "isolation": lambda pods, body: encode_isolation(pods.get_isolation([THIS_INSTANCE])[THIS_INSTANCE]),
    "known": lambda pods, body: list(pods.list_pods()),
    "clear": _clear_pod,
    "checkpointed_at": _checkpointed_at,
}
