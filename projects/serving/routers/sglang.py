"""Client for sglang-router.

The router cannot mark inference engines as unhealthy. An engine that must receive no new requests is
therefore removed from the router's list.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from projects.serving.addresses import InvalidAddress, normalize
from projects.serving.base import ErrorKind, ServingError, Worker
from projects.serving.http_client import HttpClient

POLL_SECONDS = 0.1
NOT_SUPPORTED = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}


class SGLangRouter:
    """Client for one router.

    `seconds` is the time limit for the router to add or remove an inference engine.
    """

    kind = "sglang"

    def __init__(self, http_client: HttpClient, address: str, *, seconds: float = 30.0) -> None:
        self.http_client, self.address, self.seconds = http_client, address, seconds

    def register(self, engine: str, *, model: str) -> None:
        """Register the inference engine.

        `model` is ignored, because the router queries the engine for its model.
        """
        workers_by_address = self._list_workers()
        if workers_by_address is None:
            self._add_legacy_worker(engine)
            return
        if engine in workers_by_address:
            return
        self.http_client.post(self.address, "/workers", {"url": engine}).raise_for_status()
        self._wait_until(
            lambda workers_by_address: engine in workers_by_address,
            f"the router did not report {engine} as healthy",
        )

    def unregister(self, engine: str) -> None:
        workers_by_address = self._list_workers()
        if workers_by_address is None:
            self._remove_legacy_worker(engine)
            return
        if engine not in workers_by_address:
            return
        response = self.http_client.call(
            "DELETE", self.address, f"/workers/{workers_by_address[engine].get('id', '')}"
        )
        if response.status != HTTPStatus.NOT_FOUND:
            response.raise_for_status()
        self._wait_until(
            lambda workers_by_address: engine not in workers_by_address, f"the router did not remove {engine}"
        )

    def mark_unhealthy(self, engine: str) -> None:
        self.unregister(engine)

    def mark_healthy(self, engine: str) -> None:
        self.register(engine, model="")

    def workers(self) -> tuple[Worker, ...]:
        workers_by_address = self._list_workers()
        if workers_by_address is None:
            return tuple(Worker(address, healthy=True) for address in sorted(self._list_legacy_workers()))
        return tuple(
            _parse_worker(address, workers_by_address[address]) for address in sorted(workers_by_address)
        )

    def unfinished_requests(self, engine: str) -> int | None:
        """Return None, because the router counts requests only for some load-balancing policies."""
        return None

    def _list_workers(self) -> dict[str, dict[str, Any]] | None:
        """Return the router's engines, keyed by address, or None if the router cannot list them."""
        response = self.http_client.get(self.address, "/workers")
        if response.status in NOT_SUPPORTED:
            return None
        info = response.raise_for_status().json().get("workers")
        if not isinstance(info, list) or not all(isinstance(worker, dict) for worker in info):
            raise ServingError(
                ErrorKind.UNREADABLE, self.address, "the router returned an invalid worker list"
            )
        return {_normalize_if_valid(str(worker.get("url", ""))): worker for worker in info}

    def _wait_until(self, is_done: Callable[[dict[str, dict[str, Any]]], bool], reason: str) -> None:
        """Wait until the router has applied a change. Raises ServingError with TIMEOUT."""
        deadline = time.monotonic() + self.seconds
        while not is_done(self._list_workers() or {}):
            if time.monotonic() >= deadline:
                raise ServingError(ErrorKind.TIMEOUT, self.address, f"{reason} within {self.seconds:g} s")
            time.sleep(POLL_SECONDS)

    def _add_legacy_worker(self, engine: str) -> None:
        """Add an inference engine to an older router, which responds only when the engine is healthy."""
        try:
            response = self.http_client.post(
                self.address, "/add_worker", query={"url": engine}, seconds=self.seconds
            )
        except ServingError as error:
            if error.kind is ErrorKind.TIMEOUT:
                self._remove_legacy_worker(engine)
            raise
        if not (response.status == HTTPStatus.BAD_REQUEST and b"already exists" in response.body):
            response.raise_for_status()

    def _remove_legacy_worker(self, engine: str) -> None:
        self.http_client.post(self.address, "/remove_worker", query={"url": engine}).raise_for_status()

    def _list_legacy_workers(self) -> set[str]:
        response = self.http_client.get(self.address, "/list_workers")
        if response.status in NOT_SUPPORTED:
            raise ServingError(ErrorKind.UNSUPPORTED, self.address, "this router version cannot list engines")
        urls = response.raise_for_status().json().get("urls")
        if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
            raise ServingError(
                ErrorKind.UNREADABLE, self.address, "the router returned an invalid worker list"
            )
        return {_normalize_if_valid(url) for url in urls}


def _parse_worker(address: str, info: dict[str, Any]) -> Worker:
    return Worker(address, healthy=info.get("is_healthy") is True, model=str(info.get("model_id", "")))


def _normalize_if_valid(url: str) -> str:
    try:
        return normalize(url)
    except InvalidAddress:
        return url
