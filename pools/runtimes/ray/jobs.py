"""Client of the HTTP API of a Ray cluster's head: its jobs and its nodes."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from pools.runtimes.base import RuntimeFailure
from pools.runtimes.ray.cluster import NODE_LABEL

MOST_NODES = 10_000  # Ray allows no more, and lists 100 unless asked for more
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
_EXISTS = "already exists"


@dataclass(frozen=True, slots=True)
class Job:
    status: str
    message: str

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class Jobs:
    def __init__(self, client: httpx.Client, base: str, secret: str) -> None:
        self._client, self._base = client, base
        self._headers = {"Authorization": f"Bearer {secret}"}

    def submit(
        self, name: str, entrypoint: str, *, labels: dict[str, str], devices: dict[str, float]
    ) -> None:
        """Once: an id that Ray has is left alone, as after an answer that was lost."""
        body = {
            "submission_id": name, "entrypoint": entrypoint, "entrypoint_label_selector": labels,
            "entrypoint_resources": devices or None,
        }  # fmt: skip
        answer = self._ask("POST", "", json=body)
        if answer.status_code != httpx.codes.OK and _EXISTS not in answer.text:
            raise RuntimeFailure(f"Ray rejected job {name}: {_said(answer)}")

    def job(self, name: str) -> Job | None:
        answer = self._ask("GET", quote(name, safe=""))
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        told: dict[str, Any] = _json(answer)
        return Job(str(told["status"]), str(told.get("message") or ""))

    def node_state(self, label: str) -> str:
        """Ray's state of the node with this label, such as ALIVE; empty where no such node has registered.

        A node that came back is listed twice, as DEAD and as ALIVE.
        """
        answer = self._request("GET", "/api/v0/nodes", params={"limit": MOST_NODES})
        nodes = _json(answer)["data"]["result"]["result"]
        states = [str(node["state"]) for node in nodes if (node["labels"] or {}).get(NODE_LABEL) == label]
        return "ALIVE" if "ALIVE" in states else "".join(states[-1:])

    def stop(self, name: str) -> None:
        self._ask("POST", f"{quote(name, safe='')}/stop")

    def delete(self, name: str) -> None:
        """Ray refuses while it has not seen the end; then it just knows the id for longer."""
        self._ask("DELETE", quote(name, safe=""))

    def _ask(self, method: str, path: str, **body: Any) -> httpx.Response:
        return self._request(method, f"/api/jobs/{path}", **body)

    def _request(self, method: str, path: str, **sent: Any) -> httpx.Response:
        try:
            return self._client.request(method, f"{self._base}{path}", headers=self._headers, **sent)
        except httpx.HTTPError as error:
            raise RuntimeFailure(f"the head at {self._base} does not answer: {error!r}") from error


def _json(answer: httpx.Response) -> Any:
    if answer.status_code != httpx.codes.OK:
        raise RuntimeFailure(f"Ray answered {answer.status_code}: {_said(answer)}")
    return answer.json()


def _said(answer: httpx.Response) -> str:
    lines = answer.text.strip().splitlines()
    return lines[-1][:300] if lines else f"{answer.status_code}"
