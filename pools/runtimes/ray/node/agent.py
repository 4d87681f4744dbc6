"""Here a node answers for its pods: HTTP on the cluster's own network, for whoever has its secret."""
import hmac
import json
import threading
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

    def __init__(self, address: tuple[str, int], pods: NodePods, secret: str) -> None:
        super().__init__(address, Handler)
        self.pods, self.one_at_a_time = pods, threading.Lock()
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
            self._answer(401, b"the secret of this cluster is missing or wrong")
            return
        if self.server.closing:
            self.close_connection = True
            self._answer(503, b"this node is ending")
            return
        length = int(self.headers.get("Content-Length", "0"))
        if not 0 <= length <= LONGEST_BODY:
            self.close_connection = True
            self._answer(413, b"too long")
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
        pods = self.server.pods
        match what:
            case "log":
                limit = min(int(asked["limit"]), CHUNK_MAX)
                return pods.read_log(asked["pod_id"], int(asked["offset"]), limit)
            case "tail":
                return pods.tail_log(asked["pod_id"], int(asked["lines"]))
            case "drop_workspace":
                return pods.drop_workspace(asked["workspace"])
            case "measure":
                return measured_out(pods.measure(asked["pod_ids"], [HERE]))
        with self.server.one_at_a_time:
            return self._ask_alone(what, asked)

    def _ask_alone(self, what: str, asked: dict[str, Any]) -> Any:
        pods = self.server.pods
        match what:
            case "order":
                return {"entrypoint": pods.entrypoint(order_in(asked))}
            case "stop":
                return pods.stop(asked["pod_id"], int(asked["grace_seconds"]))
            case "look":
                found = pods.look(asked["pod_ids"])
                return {pod_id: report_out(report) for pod_id, report in found.items()}
            case "known":
                return list(pods.known())
            case "clear":
                pods.forget(asked["pod_id"])
                return pods.drop_log(asked["pod_id"])
            case "checkpointed_at":
                saved = pods.checkpointed_at(asked["workspace"])
                return saved and saved.isoformat()
        raise ValueError(f"no such question: {what}")

    def _answer(self, status: int, body: bytes, log: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if log:
            self.send_header(LOG_HEADER, log)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: Berth asks every second."""
