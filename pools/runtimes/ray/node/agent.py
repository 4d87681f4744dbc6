"""HTTP agent of a node, authenticated by the cluster's secret."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pools.runtimes.base import LogChunk, RuntimeFailure
from pools.runtimes.ray.node.pods import NodePods
from pools.runtimes.ray.wire import HERE, LOG_HEADER, chunk_out, measured_out, order_in, report_out

LONGEST_BODY = 64 * 1024 * 1024
CHUNK_MAX = 4 * 1024 * 1024
IDLE_SECONDS = 60.0


class Agent(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], pods: NodePods, secret: str, obstacle: Callable[[], str]
    ) -> None:
        """`obstacle()` returns why Ray cannot run pods on this node yet, or an empty string."""
        super().__init__(address, Handler)
        self.pods, self.one_at_a_time, self.obstacle = pods, threading.Lock(), obstacle
        self.closing = False
        self.expected = f"Bearer {secret}".encode()


class Handler(BaseHTTPRequestHandler):
    """Every question is a POST to its name, with JSON; a log comes back as it is."""

    server: Agent
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def do_POST(self) -> None:
        said = self.headers.get("Authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(said, self.server.expected):
            self.close_connection = True
            self._answer(401, b"missing or wrong cluster secret")
            return
        if self.server.closing:
            self.close_connection = True
            self._answer(503, b"this node is shutting down")
            return
        length = int(self.headers.get("Content-Length", "0"))
        if not 0 <= length <= LONGEST_BODY:
            self.close_connection = True
            self._answer(413, b"request body too large")
            return
        try:
            asked = json.loads(self.rfile.read(length) or b"{}")
            answer = self._ask(self.path.strip("/"), asked)
        except (KeyError, TypeError, ValueError) as error:
            self._answer(422, str(error).encode())
        except (RuntimeFailure, OSError) as error:
            self._answer(500, str(error).encode())
        else:
            if isinstance(answer, LogChunk):
                self._answer(200, answer.data, chunk_out(answer))
            else:
                self._answer(200, json.dumps(answer).encode())

    def _ask(self, what: str, asked: dict[str, Any]) -> Any:
        if what == "obstacle":
            return self.server.obstacle()
        if what in AT_ANY_TIME:
            return AT_ANY_TIME[what](self.server.pods, asked)
        if what not in ONE_AT_A_TIME:
            raise ValueError(f"unknown request: {what}")
        with self.server.one_at_a_time:
            return ONE_AT_A_TIME[what](self.server.pods, asked)

    def _answer(self, status: int, body: bytes, log: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if log:
            self.send_header(LOG_HEADER, log)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: Berth asks every second."""


def _look(pods: NodePods, asked: dict[str, Any]) -> Any:
    return {pod_id: report_out(report) for pod_id, report in pods.look(asked["pod_ids"]).items()}


def _clear(pods: NodePods, asked: dict[str, Any]) -> None:
    pods.forget(asked["pod_id"])
    pods.drop_log(asked["pod_id"])


def _checkpointed_at(pods: NodePods, asked: dict[str, Any]) -> str | None:
    saved = pods.checkpointed_at(asked["workspace"])
    return saved.isoformat() if saved else None


def _log(pods: NodePods, asked: dict[str, Any]) -> LogChunk:
    return pods.read_log(asked["pod_id"], int(asked["offset"]), min(int(asked["limit"]), CHUNK_MAX))


AT_ANY_TIME: dict[str, Callable[[NodePods, dict[str, Any]], Any]] = {
    "log": _log,
    "tail": lambda pods, asked: pods.tail_log(asked["pod_id"], int(asked["lines"])),
    "drop_workspace": lambda pods, asked: pods.drop_workspace(asked["workspace"]),
    "measure": lambda pods, asked: measured_out(pods.measure(asked["pod_ids"], [HERE])),
}
ONE_AT_A_TIME: dict[str, Callable[[NodePods, dict[str, Any]], Any]] = {
    "order": lambda pods, asked: {"entrypoint": pods.entrypoint(order_in(asked))},
    "stop": lambda pods, asked: pods.stop(asked["pod_id"], int(asked["grace_seconds"])),
    "look": _look,
    "known": lambda pods, asked: list(pods.known()),
    "clear": _clear,
    "checkpointed_at": _checkpointed_at,
}
