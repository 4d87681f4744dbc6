"""A local OTLP collector."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    service: str
    failed: bool


@dataclass
class Collector:
    spans: list[ReceivedSpan] = field(default_factory=list)
    address: str = ""

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def wait_for(self, *names: str, seconds: float = 120) -> None:
        """Wait until a span of each name has arrived. Spans are sent in batches."""
        self.until(lambda: all(self.named(name) for name in names), seconds)

    def until(self, done: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, sorted({span.name for span in self.spans})
            time.sleep(0.01)

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        request = ExportTraceServiceRequest.FromString(body)
        for of_process in request.resource_spans:
            service = _values(of_process.resource.attributes)["service.name"]
            for scope in of_process.scope_spans:
                self.spans += [
                    ReceivedSpan(
                        span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                        _values(span.attributes), service, span.status.code == 2,
                    )
                    for span in scope.spans
                ]  # fmt: skip


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _values(attributes: Any) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: Any) -> Any:
    content = getattr(value, value.WhichOneof("value"))
    return [_value(each) for each in content.values] if value.HasField("array_value") else content
