"""Client of a node's agent."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

import httpx

from pools.runtimes.base import LogChunk, Measured, PodOrder, PodReport, RuntimeFailure
from pools.runtimes.ray.wire import LOG_HEADER, chunk_in, measured_in, order_out, report_in


class AgentAway(RuntimeFailure):
    """It does not answer: its node is booting, cut off or gone."""


class NodeAgent:
    def __init__(self, client: httpx.Client, base: str, secret: str) -> None:
        self._client, self._base = client, base
        self._headers = {"Authorization": f"Bearer {secret}"}

    def order(self, order: PodOrder) -> str:
        """What the pod's job runs; empty where there is nothing to start (any more)."""
        return str(self._ask("order", **order_out(order)).json()["entrypoint"])

    def stop(self, pod_id: str, grace_seconds: int) -> None:
        self._ask("stop", pod_id=pod_id, grace_seconds=grace_seconds)

    def look(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        told = self._ask("look", pod_ids=list(pod_ids)).json()
        return {pod_id: report_in(report) for pod_id, report in told.items()}

    def known(self) -> tuple[str, ...]:
        return tuple(self._ask("known").json())

    def clear(self, pod_id: str) -> None:
        """Forget an ended pod with its log."""
        self._ask("clear", pod_id=pod_id)

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        return self._chunk("log", pod_id=pod_id, offset=offset, limit=limit)

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        return self._chunk("tail", pod_id=pod_id, lines=lines)

    def checkpointed_at(self, workspace: str) -> datetime | None:
        saved = self._ask("checkpointed_at", workspace=workspace).json()
        return None if saved is None else datetime.fromisoformat(saved)

    def measure(self, pod_ids: Collection[str], instance_id: str) -> Measured:
        return measured_in(self._ask("measure", pod_ids=list(pod_ids)).json(), instance_id)

    def drop_workspace(self, workspace: str) -> None:
        self._ask("drop_workspace", workspace=workspace)

    def _chunk(self, what: str, **asked: Any) -> LogChunk:
        answer = self._ask(what, **asked)
        return chunk_in(answer.headers[LOG_HEADER], answer.content)

    def _ask(self, what: str, **asked: Any) -> httpx.Response:
        try:
            answer = self._client.post(f"{self._base}/{what}", json=asked, headers=self._headers)
        except httpx.HTTPError as error:
            raise AgentAway(f"the node at {self._base} does not answer: {error!r}") from error
        if answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            raise ValueError(answer.text[:300])
        if answer.status_code != httpx.codes.OK:
            raise RuntimeFailure(
                f"the node at {self._base} answered {answer.status_code}: {answer.text[:300]}"
            )
        return answer
