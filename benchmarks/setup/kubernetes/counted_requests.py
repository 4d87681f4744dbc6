"""Count the requests that this process sends to Kubernetes API servers."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

KINDS = ("nodes", "pods", "secrets", "namespaces", "resourcequotas", "log")


@dataclass
class Requests:
    """Completion times of requests, keyed by verb and kind, and the bodies of requests that create pods."""

    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def clear(self) -> None:
        self.times.clear()
        self.bodies.clear()

    def summary(self) -> dict[str, Any]:
        """Return the number of requests by verb and kind, and the rate of pod creations per second."""
        created = self.times.get("post pods", [])
        rate = {"created_per_s": round((len(created) - 1) / (created[-1] - created[0]), 1)} if created else {}
        return {**rate, "requests": {name: len(each) for name, each in self.times.items()}}

    def creations(self, began: float) -> dict[str, Any]:
        """Return the time of the first and the last pod creation since `began`, and the rate per second."""
        times = [at - began for at in self.times["post pods"]]
        return {
            "first_created_s": round(times[0], 2), "last_created_s": round(times[-1], 2),
            "created_per_s": round(len(times) / times[-1], 1),
        }  # fmt: skip

    def add(self, method: str, path: str, body: bytes | None) -> None:
        name = _describe(method, path)
        self.times[name].append(time.monotonic())
        if name == "post pods" and body is not None:
            self.bodies.append(json.loads(body))


@contextmanager
def counted_requests() -> Iterator[Requests]:
    import httpx

    from pools.kubernetes.api_server.calls import Connections

    requests, send, stream = Requests(), Connections.send, httpx.Client.stream

    def counted_send(
        calls: Connections, method: str, path: str, query: Any, body: bytes | None, *rest: Any
    ) -> Any:
        response = send(calls, method, path, query, body, *rest)
        requests.add(method, path, body)
        return response

    def counted_stream(client: httpx.Client, method: str, path: str, **named: Any) -> Any:
        requests.add("watch" if "watch" in named["params"] else method, path, None)
        return stream(client, method, path, **named)

    Connections.send, httpx.Client.stream = counted_send, counted_stream  # type: ignore[method-assign, assignment]
    try:
        yield requests
    finally:
        Connections.send, httpx.Client.stream = send, stream  # type: ignore[method-assign]


def _describe(method: str, path: str) -> str:
    parts = path.strip("/").split("/")
    kinds = [part for part in parts if part in KINDS]
    is_list = method == "GET" and parts[-1] == kinds[-1]
    return f"{'list' if is_list else method.lower()} {kinds[-1]}"
