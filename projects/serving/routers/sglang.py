"""Register engines with sglang-router.

Neither has a mark for an engine that is to get nothing new, and the checks by which it could be made look ill
run once a minute. So such an engine is taken out of the list: what is under way to it ends as it would have.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from projects.serving.addresses import BadAddress, normalised
from projects.serving.base import ServingError, Trouble, Worker
from projects.serving.wire import Wire

STEP_SECONDS = 0.1
NO_SUCH_PAGE = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}


class SGLangRouter:
    """`seconds`: so long it may take until it has found an engine well, or has let it go."""

    kind = "sglang"

    def __init__(self, wire: Wire, address: str, *, seconds: float = 30.0) -> None:
        self.wire, self.address, self.seconds = wire, address, seconds

    def register(self, engine: str, *, model: str) -> None:
        """It asks the engine itself which model that is."""
        listed = self._listed()
        if listed is None:
            self._add(engine)
            return
        if engine in listed:
            return
        self.wire.post(self.address, "/workers", {"url": engine}).or_refused()
        self._until(lambda has: engine in has, f"it has not found {engine} well")

    def unregister(self, engine: str) -> None:
        listed = self._listed()
        if listed is None:
            self._take_out(engine)
            return
        if engine not in listed:
            return
        answer = self.wire.call("DELETE", self.address, f"/workers/{listed[engine].get('id', '')}")
        if answer.status != HTTPStatus.NOT_FOUND:
            answer.or_refused()
        self._until(lambda has: engine not in has, f"it still has {engine}")

    def mark_unhealthy(self, engine: str) -> None:
        self.unregister(engine)

    def mark_healthy(self, engine: str) -> None:
        self.register(engine, model="")

    def workers(self) -> tuple[Worker, ...]:
        listed = self._listed()
        if listed is None:
            return tuple(Worker(address, healthy=True) for address in sorted(self._older_list()))
        return tuple(_worker(address, listed[address]) for address in sorted(listed))

    def running_requests(self, engine: str) -> int | None:
        """What it counts depends on how it spreads requests, so it is not asked."""
        return None

    def _listed(self) -> dict[str, dict[str, Any]] | None:
        """What it says of each engine, by address; None where it is too old to be asked so."""
        answer = self.wire.get(self.address, "/workers")
        if answer.status in NO_SUCH_PAGE:
            return None
        said = answer.or_refused().json().get("workers")
        if not isinstance(said, list) or not all(isinstance(worker, dict) for worker in said):
            raise ServingError(Trouble.UNREADABLE, self.address, "its workers are no list")
        return {_same(str(worker.get("url", ""))): worker for worker in said}

    def _until(self, enough: Callable[[dict[str, dict[str, Any]]], bool], why: str) -> None:
        """It works in the background, and answers before it has begun."""
        until = time.monotonic() + self.seconds
        while not enough(self._listed() or {}):
            if time.monotonic() >= until:
                raise ServingError(Trouble.TIMEOUT, self.address, f"{why} within {self.seconds:g} s")
            time.sleep(STEP_SECONDS)

    def _add(self, engine: str) -> None:
        """The older way answers only once the engine is well, and goes on waiting when nobody listens."""
        try:
            answer = self.wire.post(self.address, "/add_worker", query={"url": engine}, seconds=self.seconds)
        except ServingError as error:
            if error.trouble is Trouble.TIMEOUT:
                self._take_out(engine)
            raise
        if not (answer.status == HTTPStatus.BAD_REQUEST and b"already exists" in answer.body):
            answer.or_refused()

    def _take_out(self, engine: str) -> None:
        self.wire.post(self.address, "/remove_worker", query={"url": engine}).or_refused()

    def _older_list(self) -> set[str]:
        answer = self.wire.get(self.address, "/list_workers")
        if answer.status in NO_SUCH_PAGE:
            raise ServingError(Trouble.UNSUPPORTED, self.address, "it is too old to list its engines")
        urls = answer.or_refused().json().get("urls")
        if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
            raise ServingError(Trouble.UNREADABLE, self.address, "its workers are no list")
        return {_same(url) for url in urls}


def _worker(address: str, said: dict[str, Any]) -> Worker:
    return Worker(address, healthy=said.get("is_healthy") is True, model=str(said.get("model_id", "")))


def _same(url: str) -> str:
    """As Berth writes it; what it could not have written is somebody else's."""
    try:
        return normalised(url)
    except BadAddress:
        return url
