"""A small engine with SGLang's HTTP API (0.5) and scripted faults.

Run it as a program (`python -m tests.serving.engine.server --port 30000`) or in a thread with `serving`.
"""

import argparse
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.serving.engine.model import Aborted, Model
from tests.serving.engine.weights import Failed, Weights

TOKENS = 16


@dataclass(frozen=True)
class Fault:
    """A fault in one response. `half` truncates the response, and `body` replaces its body."""

    slow: float = 0.0
    status: int = 0
    half: bool = False
    body: str | None = None
    drip: bool = False  # send one byte at a time, slowly
    hang_up: bool = False
    to: str = ""  # target URL of a redirect


@dataclass
class SimulatedEngine:
    """An inference engine with its model, its weights and the requests that it has received."""

    model: Model
    weights: Weights = field(default_factory=Weights)
    kind: str = "sglang"  # "openai" has only the standard endpoints
    healthy: bool = True
    parameters: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    received: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def info(self) -> dict[str, Any]:
        return {
            "model_path": f"/models/{self.model.name}", "served_model_name": self.model.name,
            "tokenizer_path": f"/models/{self.model.name}", "tp_size": self.model.ranks, "dp_size": 1,
            "dtype": "bfloat16", "context_length": 4096, "quantization": None, "version": "0.5.23",
            "internal_states": [{}], **self.parameters,
        }  # fmt: skip

    def model_info(self) -> dict[str, Any]:
        return {
            "model_path": f"/models/{self.model.name}", "served_model_name": self.model.name,
            "is_generation": True, "weight_version": self.weights.version,
        }  # fmt: skip


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, engine: SimulatedEngine, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.engine = engine

    def handle_error(self, *_: Any) -> None:
        # Clients may disconnect. Tests check for that on the client side.
        pass

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        self._answer("get")

    def do_POST(self) -> None:
        self._answer("post")

    def log_message(self, *_: Any) -> None:
        # Tests inspect the responses instead.
        pass

    def _answer(self, verb: str) -> None:
        path = urlsplit(self.path).path
        body = self._body()
        engine = self.server.engine
        engine.received.append((path, body))
        handler = HANDLERS.get((verb, path))
        if handler is None or (engine.kind == "openai" and path not in OPENAI):
            self._send(404, b'{"detail":"Not Found"}', engine.faults.get(path, Fault()))
            return
        status, answer = handler(engine, body)
        self._send(status, answer, engine.faults.get(path, Fault()))

    def _body(self) -> dict[str, Any]:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(text) if text else {}

    def _send(self, status: int, body: bytes, fault: Fault) -> None:
        time.sleep(fault.slow)
        if fault.hang_up:
            self.close_connection = True
            return
        body = body if fault.body is None else fault.body.encode()
        self.send_response(302 if fault.to else fault.status or status)
        if fault.to:
            self.send_header("Location", fault.to)
        self.send_header("Content-Type", "application/json" if body[:1] in {b"{", b"["} else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault.drip:
            for number in range(len(body)):
                self.wfile.write(body[number : number + 1])
                time.sleep(0.1)
        elif fault.half:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(body)


Response = tuple[int, bytes]


def _json(value: Any, status: int = 200) -> Response:
    return status, json.dumps(value).encode()


def health(engine: SimulatedEngine, _: dict[str, Any]) -> Response:
    return (200 if engine.healthy else 503), b""


def metrics(engine: SimulatedEngine, _: dict[str, Any]) -> Response:
    return 200, engine.model.metrics()


def generate(engine: SimulatedEngine, request: dict[str, Any]) -> Response:
    parameters = request.get("sampling_params") or request
    tokens = int(parameters.get("max_new_tokens") or parameters.get("max_tokens") or TOKENS)
    try:
        engine.model.generate(tokens)
    except Aborted:
        return _json({"error": {"message": "Abort before prefill"}}, 500)
    text = f"{tokens} tokens by {engine.weights.digest[:8]}"
    message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return _json({"id": "x", "object": "chat.completion", "model": engine.model.name, "text": text,
                  "choices": [message], "meta_info": {"weight_version": engine.weights.version}})  # fmt: skip


def pause(engine: SimulatedEngine, request: dict[str, Any]) -> Response:
    if request.get("mode", "abort") == "abort":
        engine.model.abort()
    engine.model.paused = True
    return _json({"message": "Generation paused successfully.", "status": "ok"})


def resume(engine: SimulatedEngine, _: dict[str, Any]) -> Response:
    engine.model.paused = False
    return _json({"message": "Generation continued successfully.", "status": "ok"})


def flush(engine: SimulatedEngine, _: dict[str, Any]) -> Response:
    return (200, b"Cache flushed.\n") if engine.model.flush() else (400, b"Flush cache failed.\n")


def abort(engine: SimulatedEngine, request: dict[str, Any]) -> Response:
    if request.get("abort_all"):
        engine.model.abort()
    return 200, b""


def join(engine: SimulatedEngine, request: dict[str, Any]) -> Response:
    ports = request["ports"].split(",")
    try:
        if len(ports) != engine.model.ranks:
            raise Failed(f"Expected {engine.model.ranks} ports, but got {len(ports)} ports.")
        address, rank, size = request["master_address"], request["group_rank"], request["world_size"]
        engine.weights.join(request["group_name"], address, int(ports[0]), rank, size)
    except Failed as failed:
        return _json({"success": False, "message": str(failed)}, 400)
    return _json({"success": True, "message": "Succeeded to init group."})


def send(engine: SimulatedEngine, request: dict[str, Any]) -> Response:
    try:
        engine.weights.transfer(request["group_name"])
    except Failed as failed:
        return _json({"success": False, "message": str(failed)}, 400)
    return _json({"success": True, "message": "Succeeded to send weights."})


def set_version(engine: SimulatedEngine, request: dict[str, Any]) -> Response:
    if request.get("abort_all_requests", True):
        engine.model.abort()
    engine.weights.version = request["new_version"]
    return _json({"success": True, "message": "", "new_version": request["new_version"]})


def from_disk(engine: SimulatedEngine, request: dict[str, Any]) -> Response:
    """Load a trainer's new weights into an initial engine."""
    with engine.weights.lock:
        engine.weights.held = Path(request["model_path"]).read_bytes()
        engine.weights.version = request.get("weight_version") or engine.weights.version
    return _json({"success": True, "message": "", "num_paused_requests": 0})


def loads(engine: SimulatedEngine, _: dict[str, Any]) -> Response:
    now = {"dp_rank": 0, "num_running_reqs": engine.model.running, "num_waiting_reqs": engine.model.queued}
    return _json({"version": "0.5.23", "loads": [now]})


def models(engine: SimulatedEngine, _: dict[str, Any]) -> Response:
    return _json({"object": "list", "data": [{"id": engine.model.name, "max_model_len": 4096}]})


HANDLERS = {
    ("get", "/health"): health, ("get", "/health_generate"): health, ("get", "/metrics"): metrics,
    ("get", "/server_info"): lambda engine, _: _json(engine.info()),
    ("get", "/get_server_info"): lambda engine, _: _json(engine.info()),
    ("get", "/model_info"): lambda engine, _: _json(engine.model_info()),
    ("get", "/get_model_info"): lambda engine, _: _json(engine.model_info()),
    ("get", "/v1/loads"): loads, ("get", "/v1/models"): models, ("post", "/generate"): generate,
    ("post", "/v1/chat/completions"): generate, ("post", "/v1/completions"): generate,
    ("post", "/pause_generation"): pause, ("post", "/continue_generation"): resume,
    ("post", "/flush_cache"): flush, ("post", "/abort_request"): abort,
    ("post", "/init_weights_send_group_for_remote_instance"): join,
    ("post", "/send_weights_to_remote_instance"): send,
    ("post", "/update_weight_version"): set_version, ("post", "/update_weights_from_disk"): from_disk,
}  # fmt: skip
OPENAI = {"/health", "/metrics", "/v1/models", "/v1/chat/completions", "/v1/completions"}


@contextmanager
def serving(engine: SimulatedEngine, port: int = 0) -> Iterator[Server]:
    server = Server(engine, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="A small engine that speaks SGLang's HTTP API.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="default")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--seconds-per-token", type=float, default=0.01)
    parser.add_argument("--max-tokens", type=int, default=1000)
    options = parser.parse_args()
    model = Model(
        options.model,
        slots=options.slots,
        seconds_per_token=options.seconds_per_token,
        max_tokens=options.max_tokens,
    )
    server = Server(SimulatedEngine(model), options.port)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.05)
    while model.running or model.queued:  # finish running requests first
        time.sleep(0.05)
    time.sleep(0.2)  # time to send the last response


if __name__ == "__main__":
    main()
