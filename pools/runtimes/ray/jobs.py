"""HTTP client of a Ray head node: submit and list jobs, and list nodes."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from pools.runtimes.base import PodCause, PodReport, PodState, RuntimeFailure
from pools.runtimes.ray.cluster import NODE_LABEL

NODES_MAX = 10_000  # maximum number of listed nodes that Ray allows (default: 100)
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
_EXISTS = "already exists"


@dataclass(frozen=True, slots=True)
class RayJob:
    status: str
    message: str

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def last_line(self) -> str:
        return _last_line(self.message) or "unknown reason"


class Jobs:
    def __init__(self, client: httpx.Client, base: str, secret: str) -> None:
        self._client, self._base = client, base
        self._headers = {"Authorization": f"Bearer {secret}"}

    def submit(
        self, name: str, entrypoint: str, *, labels: dict[str, str], devices: dict[str, float]
    ) -> None:
        """Submit the job. The error for a duplicate job is ignored, so the call may be repeated."""
        body = {
            "submission_id": name, "entrypoint": entrypoint, "entrypoint_label_selector": labels,
            "entrypoint_resources": devices or None,
        }  # fmt: skip
        response = self._call_jobs_api("POST", "", json=body)
        if response.status_code != httpx.codes.OK and _EXISTS not in response.text:
            raise RuntimeFailure(f"Ray rejected job {name}: {_error_text(response)}")

    def get_job(self, name: str) -> RayJob | None:
        response = self._call_jobs_api("GET", quote(name, safe=""))
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        details: dict[str, Any] = _json_or_failure(response)
        return RayJob(str(details["status"]), str(details.get("message") or ""))

    def node_state(self, label: str) -> str:
        """Return the state that Ray reports for the node with this label, such as ALIVE, or "" if no such
        node has registered.

        A node that rejoined is listed twice, as DEAD and as ALIVE.
        """
        response = self._request("GET", "/api/v0/nodes", params={"limit": NODES_MAX})
        nodes = _json_or_failure(response)["data"]["result"]["result"]
        states = [str(node["state"]) for node in nodes if (node["labels"] or {}).get(NODE_LABEL) == label]
        return "ALIVE" if "ALIVE" in states else "".join(states[-1:])

    def stop(self, name: str) -> None:
        self._call_jobs_api("POST", f"{quote(name, safe='')}/stop")

    def delete(self, name: str) -> None:
        """Delete the finished job.

        Ray rejects the deletion, and still lists the job, until it has noticed that the job has ended.
        """
        self._call_jobs_api("DELETE", quote(name, safe=""))

    def _call_jobs_api(self, method: str, path: str, **body: Any) -> httpx.Response:
        return self._request(method, f"/api/jobs/{path}", **body)

    def _request(self, method: str, path: str, **sent: Any) -> httpx.Response:
        try:
            return self._client.request(method, f"{self._base}{path}", headers=self._headers, **sent)
        except httpx.HTTPError as error:
            raise RuntimeFailure(f"the Ray head node at {self._base} is not responding: {error!r}") from error


def _json_or_failure(response: httpx.Response) -> Any:
    if response.status_code != httpx.codes.OK:
        raise RuntimeFailure(f"Ray responded with {response.status_code}: {_error_text(response)}")
    return response.json()


def _error_text(response: httpx.Response) -> str:
    return _last_line(response.text) or str(response.status_code)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""


def lost_report(message: str) -> PodReport:
    return PodReport(PodState.EXITED, cause=PodCause.LOST, message=message)
