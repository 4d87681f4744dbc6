"""Register engines with sglang-router.

The router cannot mark engines that should get no new requests, and its health checks run only once a minute.
Such engines are therefore removed from its list. Their running requests still complete.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from projects.serving.addresses import BadAddress, normalize
from projects.serving.base import ErrorKind, ServingError, Worker
from projects.serving.wire import Wire

STEP_SECONDS = 0.1
NOT_SUPPORTED = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}


class SGLangRouter:
    """`seconds` is the time allowed for the router to find an engine healthy or to remove it."""

    kind = "sglang"

    def __init__(self, wire: Wire, address: str, *, seconds: float = 30.0) -> None:
        self.wire, self.address, self.seconds = wire, address, seconds

    def register(self, engine: str, *, model: str) -> None:
        """Register the engine. The router asks the engine for its model."""
        listed = self._listed()
        if listed is None:
            self._legacy_add(engine)
            return
        if engine in listed:
            return
        self.wire.post(self.address, "/workers", {"url": engine}).or_refused()
        self._wait_until(lambda listed: engine in listed, f"it did not find {engine} healthy")

    def unregister(self, engine: str) -> None:
        listed = self._listed()
        if listed is None:
            self._remove(engine)
            return
        if engine not in listed:
            return
        answer = self.wire.call("DELETE", self.address, f"/workers/{listed[engine].get('id', '')}")
        if answer.status != HTTPStatus.NOT_FOUND:
            answer.or_refused()
        self._wait_until(lambda listed: engine not in listed, f"it did not remove {engine}")

    def mark_unhealthy(self, engine: str) -> None:
        self.unregister(engine)

    def mark_healthy(self, engine: str) -> None:
        self.register(engine, model="")

    def workers(self) -> tuple[Worker, ...]:
        listed = self._listed()
        if listed is None:
            return tuple(Worker(address, healthy=True) for address in sorted(self._legacy_list()))
        return tuple(_worker(address, listed[address]) for address in sorted(listed))

    def running_requests(self, engine: str) -> int | None:
        """Return None, because the router's count depends on its balancing policy."""
        return None

    def _listed(self) -> dict[str, dict[str, Any]] | None:
        """Return the description of each engine by address, or None for routers without this endpoint."""
        answer = self.wire.get(self.address, "/workers")
        if answer.status in NOT_SUPPORTED:
            return None
        info = answer.or_refused().json().get("workers")
        if not isinstance(info, list) or not all(isinstance(worker, dict) for worker in info):
            raise ServingError(ErrorKind.UNREADABLE, self.address, "its workers are not a list")
        return {_normalized(str(worker.get("url", ""))): worker for worker in info}

    def _wait_until(self, is_done: Callable[[dict[str, dict[str, Any]]], bool], reason: str) -> None:
        """Wait for a change that the router makes in the background. Raises ServingError with TIMEOUT."""
        until = time.monotonic() + self.seconds
        while not is_done(self._listed() or {}):
            if time.monotonic() >= until:
                raise ServingError(ErrorKind.TIMEOUT, self.address, f"{reason} within {self.seconds:g} s")
            time.sleep(STEP_SECONDS)

    def _legacy_add(self, engine: str) -> None:
        """Add an engine to an older router, which responds only once the engine is healthy."""
        try:
            answer = self.wire.post(self.address, "/add_worker", query={"url": engine}, seconds=self.seconds)
        except ServingError as error:
            if error.kind is ErrorKind.TIMEOUT:
                self._remove(engine)
            raise
        if not (answer.status == HTTPStatus.BAD_REQUEST and b"already exists" in answer.body):
            answer.or_refused()

    def _remove(self, engine: str) -> None:
        self.wire.post(self.address, "/remove_worker", query={"url": engine}).or_refused()

    def _legacy_list(self) -> set[str]:
        answer = self.wire.get(self.address, "/list_workers")
        if answer.status in NOT_SUPPORTED:
            raise ServingError(ErrorKind.UNSUPPORTED, self.address, "its version cannot list engines")
        urls = answer.or_refused().json().get("urls")
        if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
            raise ServingError(ErrorKind.UNREADABLE, self.address, "its workers are not a list")
        return {_normalized(url) for url in urls}


def _worker(address: str, info: dict[str, Any]) -> Worker:
    return Worker(address, healthy=info.get("is_healthy") is True, model=str(info.get("model_id", "")))


def _normalized(url: str) -> str:
    """Return the normalized URL. URLs not written by Berth stay unchanged."""
    try:
        return normalize(url)
    except BadAddress:
        return url
