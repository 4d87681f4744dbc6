"""An HTTP transport that returns scripted responses and records requests."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from berth.client import Client, Settings
from berth.client.sync.transport import Transport

TIME = "2026-01-01T00:00:00Z"
HERE = Settings("http://127.0.0.1:8000", "berth_secret")
Reply = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


class StubServer(httpx.BaseTransport):
    """A transport that returns its responses in order and then repeats the last one."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.requests: list[httpx.Request] = []
        self.waits: list[float] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply(request) if callable(reply) else reply

    @property
    def calls(self) -> list[str]:
        """The requests so far, as `METHOD /path?query`."""
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]

    def client(self, settings: Settings = HERE) -> Client:
        return Client(settings, http=self, sleep=self.waits.append)

    def transport(self, settings: Settings = HERE) -> Transport:
        return Transport(settings, http=self, sleep=self.waits.append, jitter=lambda: 0.5)


def page(items: Sequence[object], following: str | None = None) -> httpx.Response:
    return httpx.Response(200, json={"items": list(items), "next": following})


def problem(status: int, **fields: Any) -> httpx.Response:
    body = {"type": "about:blank", "title": "No", "status": status, **fields}
    return httpx.Response(
        status, content=json.dumps(body), headers={"Content-Type": "application/problem+json"}
    )


def workload(
    name: str = "train", project: str = "vision", phase: str = "running", **fields: Any
) -> dict[str, Any]:
    number = sum(ord(letter) * place for place, letter in enumerate(f"{project}/{name}/{phase}", 1))
    return {
        "id": f"00000000-0000-4000-8000-{number:012d}", "name": name, "project": project,
        "department": "research", "kind": "training", "priority": 50, "preemptible": True, "pools": ["local"],
        "phase": phase, "reason": "", "message": "", "since": TIME,
        "submitted_at": TIME, "submitted_by": "alice", "started_at": None,
        "ended_at": None, "run": 1, "preemptions": 0, "restarts": 0, "retries": {},
        "avoided_nodes": [], "exit_code": None, "pool": "local",
        "gpus": {"requested": 4, "now": 4}, "labels": {}, "queue_position": None, "expected_start": None,
        "pods": {"running": 4, "maximum": 4}, **fields,
    }  # fmt: skip


def pod(run: int = 1, **fields: Any) -> dict[str, Any]:
    times = {"since": TIME, "created_at": TIME}
    return {"id": f"p{run}", "role": "worker", "index": 0, "run": run, **times, **fields}
