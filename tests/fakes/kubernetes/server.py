"""HTTP server of a fake Kubernetes cluster."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from tests.fakes.kubernetes.cluster import FakeCluster
from tests.fakes.kubernetes.files import answer_exec
from tests.fakes.kubernetes.store import Object, Rejection

CLUSTER_WIDE = ("nodes", "namespaces")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: ClassVar[FakeCluster]
    _is_lost = False

    def log_message(self, *_: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the time for the Date header from the cluster's clock."""
        return super().date_time_string(int(time.time() + self.cluster.clock_ahead.total_seconds()))

    def do_GET(self) -> None:
        self._answer("get")

    def do_POST(self) -> None:
        self._answer("create")

    def do_DELETE(self) -> None:
        self._answer("delete")

    def _answer(self, verb: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.cluster.answers.wait()
        if self.cluster.is_down:
            self.close_connection = True
            return
        url = urlsplit(self.path)
        if url.path == "/version":
            self._send(200, {"gitVersion": "v1.30.0"})
            return
        query = dict(parse_qsl(url.query))
        resource, namespace, name, part = _parse(url.path)
        if verb == "get" and not name:
            verb = "watch" if query.get("watch") else "list"
        call = verb, f"{resource}/{part}" if part else resource
        self.cluster.calls.add(call)
        if part in ("exec", "portforward"):  # newer clusters check both verbs
            self.cluster.calls.add(("create", call[1]))
        try:
            if rejection := self.cluster.rejections.get(call):
                raise rejection
            self._is_lost = call in self.cluster.lost_responses
            self._dispatch(call, namespace, name, query, json.loads(body) if body else {})
        except Rejection as rejection:
            self._send(rejection.status, rejection.body(), rejection.headers)

    def _dispatch(
        self, call: tuple[str, str], namespace: str, name: str, query: dict[str, str], body: Object
    ) -> None:
        cluster, store = self.cluster, self.cluster.store
        match call:
            case "list", kind:
                self._list(kind, int(query.get("limit", 500)), int(query.get("continue", 0)))
            case "watch", kind:
                self._watch(kind, int(query["resourceVersion"]), float(query.get("timeoutSeconds", 60)))
            case "get", "pods/log":
                self._log(namespace, name, query)
            case "get", "pods/exec":
                pairs = parse_qsl(urlsplit(self.path).query, keep_blank_values=True)
                answer_exec(self, cluster.run(name, [value for key, value in pairs if key == "command"]))
            case "get", "pods/portforward":
                raise Rejection(404, "NotFound", "simulated pods have no ports")
            case "get", kind:
                self._send(200, store.find(kind, namespace, name))
            case "create", "selfsubjectaccessreviews":
                self._send(201, cluster.review(body["spec"]["resourceAttributes"]))
            case "create", "pods":
                self._send(201, cluster.create_pod(body))
            case "create", kind:
                place = body["metadata"].get("namespace", ""), body["metadata"]["name"]
                if (kind, *place) in store.objects:
                    raise Rejection(409, "AlreadyExists", f'{kind} "{place[1]}" already exists')
                store.put(kind, body)
                self._send(201, body)
            case "delete", "pods":
                cluster.delete_pod(namespace, name, body.get("gracePeriodSeconds"))
                self._send(200, {"kind": "Status", "status": "Success"})
            case _:
                raise Rejection(404, "NotFound", f"no such call: {call}")

    def _list(self, kind: str, limit: int, start: int) -> None:
        with self.cluster.store.lock:
            items, version = self.cluster.store.of_kind(kind), str(self.cluster.store.latest)
        metadata: Object = {"resourceVersion": version}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        self._send(200, {"metadata": metadata, "items": items[start : start + limit]})

    def _watch(self, kind: str, version: int, seconds: float) -> None:
        self.cluster.watched_from[kind].append(version)
        self._start_stream()
        try:
            for change in self.cluster.store.changes(kind, version, seconds):
                self.cluster.answers.wait()
                if self.cluster.is_down:
                    return
                if change is not None:
                    _, name, item = change
                    self._send_part(json.dumps({"type": name, "object": item}).encode() + b"\n")
        except Rejection as rejection:
            self._send_part(json.dumps({"type": "ERROR", "object": rejection.body()}).encode() + b"\n")
        except OSError:
            return
        self._end_stream()

    def _log(self, namespace: str, name: str, query: dict[str, str]) -> None:
        cluster, since = self.cluster, query.get("sinceTime", "")
        cluster.store.find("pods", namespace, name)
        if query.get("follow") != "true":
            self._send_bytes(200, cluster.log(name, since)[: int(query.get("limitBytes", 1 << 30))], {})
            return
        self._start_stream()
        sent = b""
        while True:
            with cluster.store.lock:
                is_alive = ("pods", namespace, name) in cluster.store.objects
                data = cluster.log(name, since)
                if is_alive and data == sent:
                    cluster.store.lock.wait(0.2)
            if len(data) > len(sent):
                self._send_part(data[len(sent) :])
                sent = data
            elif not is_alive:
                break
        self._end_stream()

    def _send(self, status: int, body: Object, headers: Object | None = None) -> None:
        with self.cluster.store.lock:
            content = json.dumps(body).encode()
        self._send_bytes(status, content, headers or {})

    def _send_bytes(self, status: int, content: bytes, headers: Object) -> None:
        if self._is_lost:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _start_stream(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send_part(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")


def _parse(path: str) -> tuple[str, str, str, str]:
    parts = path.removeprefix("/apis/authorization.k8s.io/v1/").removeprefix("/api/v1/").split("/")
    if parts[0] == "namespaces" and len(parts) > 2:
        resource, rest = parts[2], parts[3:]
        return resource, parts[1], rest[0] if rest else "", rest[1] if len(rest) > 1 else ""
    return parts[0], "", parts[1] if len(parts) > 1 else "", ""


@contextmanager
def serve(cluster: FakeCluster) -> Iterator[str]:
    """Serve the cluster on loopback and yield its URL."""
    handler: Any = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        cluster.is_down = True
        cluster.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()
