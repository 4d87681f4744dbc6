"""HTTP client of the agent that runs on each Ray node."""

import json
import socket
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

import httpx

from pools.runtimes.base import (
    ChannelRejected,
    LogChunk,
    LogTime,
    Measurements,
    PodReport,
    PodSpec,
    RuntimeFailure,
    StopNotice,
)
from pools.runtimes.enclosure.levels import Isolation
from pools.runtimes.files.base import PodFile, PodFiles, VolumeChanges
from pools.runtimes.wire import (
    LOG_HEADER,
    decode_chunk,
    decode_isolation,
    decode_measurements,
    decode_report,
    encode_pod_spec,
)

CHANNEL_SECONDS = 20.0  # time limit for an agent to open a channel
CHUNK_BYTES = 4 * 1024 * 1024
SKEW_MIN = timedelta(seconds=10)  # smaller clock differences may only reflect the duration of the call


class AgentUnreachable(RuntimeFailure):
    """Raised if a node's agent does not respond, because the node is booting, disconnected or gone."""


class NodeAgent:
    def __init__(self, client: httpx.Client, base: str, secret: str) -> None:
        self._client, self._base = client, base
        self._headers = {"Authorization": f"Bearer {secret}"}

    def send_spec(self, spec: PodSpec) -> str:
        """Send the pod spec. Return the command of the pod's Ray job, or "" if the pod must not start."""
        return str(self._request("order", **encode_pod_spec(spec)).json()["entrypoint"])

    def stop(self, pod_id: str, grace_seconds: int, notice: StopNotice | None = None) -> None:
        fields = {"signal": notice.signal, "lead_seconds": notice.lead_seconds} if notice else {}
        self._request("stop", pod_id=pod_id, grace_seconds=grace_seconds, **fields)

    def get_reports(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        """Return each pod's report, with times converted to Berth's clock."""
        response = self._request("look", pod_ids=list(pod_ids))
        skew = _clock_skew(response)
        return {
            pod_id: _shift_times(decode_report(report), skew) for pod_id, report in response.json().items()
        }

    def list_pods(self) -> tuple[str, ...]:
        return tuple(self._request("known").json())

    def clear(self, pod_id: str) -> None:
        """Delete a finished pod's record and log."""
        self._request("clear", pod_id=pod_id)

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        return self._request_chunk("log", pod_id=pod_id, offset=offset, limit=limit)

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        return self._request_chunk("tail", pod_id=pod_id, lines=lines)

    def read_log_times(self, pod_id: str, start: int, end: int) -> Sequence[LogTime]:
        """Return the log's timestamps, converted to Berth's clock.

        The result is empty if the agent is too old to record timestamps.
        """
        try:
            response = self._request("log_times", pod_id=pod_id, start=start, end=end)
        except ValueError:
            return ()
        skew = int(_clock_skew(response).total_seconds() * 1000)
        return [(part_end, moment and moment - skew) for part_end, moment in response.json()]

    def log_chunks(self, pod_id: str) -> Iterator[tuple[int, bytes]]:
        """Yield the pod's log in chunks, each with its offset."""
        offset = 0
        while True:
            chunk = self.read_log(pod_id, offset, CHUNK_BYTES)
            if chunk.data:
                yield chunk.offset, chunk.data
            if chunk.complete or chunk.next_offset <= offset:
                return
            offset = chunk.next_offset

    def open_channel(self, pod_id: str) -> socket.socket:
        """Return a socket that the agent has connected to a new channel of the pod.

        Raises ChannelRejected or RuntimeFailure.
        """
        address = urlsplit(self._base)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=CHANNEL_SECONDS)
        try:
            headers = {**self._headers, "Connection": "Upgrade", "Upgrade": "berth-channel"}
            connection.request("POST", "/channel", json.dumps({"pod_id": pod_id}), headers)
            response = connection.getresponse()
            if response.status != httpx.codes.SWITCHING_PROTOCOLS:
                reason = response.read(300).decode(errors="replace")
                self._raise_rejection(response.status, reason)
            opened = connection.sock.dup()
        except (OSError, HTTPException) as error:
            raise AgentUnreachable(f"the node at {self._base} is not responding: {error!r}") from error
        finally:
            connection.close()
        opened.settimeout(None)
        enable_keepalive(opened)
        return opened

    def _raise_rejection(self, status: int, reason: str) -> None:
        if status == httpx.codes.CONFLICT:
            raise ChannelRejected(reason)
        if reason == "unknown request: channel":
            raise ChannelRejected(
                f"the agent on the node at {self._base} is outdated and will be upgraded. "
                "Try again in a few minutes"
            )
        raise RuntimeFailure(f"the node at {self._base} responded with {status}: {reason}")

    def list_files(self, pod_id: str, paths: Collection[str]) -> PodFiles:
        return _decode_files(self._request("files", pod_id=pod_id, paths=list(paths)))

    def list_retained_files(self, pod_id: str, workspace: str, path: str) -> PodFiles:
        return _decode_files(self._request("kept_files", pod_id=pod_id, workspace=workspace, path=path))

    def read_retained_file(self, pod_id: str, workspace: str, path: str, offset: int, limit: int) -> bytes:
        place = {"pod_id": pod_id, "workspace": workspace, "path": path}
        return self._request("kept_file", **place, offset=offset, limit=limit).content

    def read_file(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        return self._request("file", pod_id=pod_id, path=path, offset=offset, limit=limit).content

    def list_volume_changes(self, pod_id: str, volume: str) -> VolumeChanges:
        return _decode_changes(self._request("volume_changes", pod_id=pod_id, volume=volume))

    def read_volume_file(self, pod_id: str, volume: str, path: str, offset: int, limit: int) -> bytes:
        place = {"pod_id": pod_id, "volume": volume, "path": path}
        return self._request("volume_file", **place, offset=offset, limit=limit).content

    def checkpointed_at(self, workspace: str) -> datetime | None:
        """Return the time of the workspace's last checkpoint by Berth's clock, or None if there is none."""
        response = self._request("checkpointed_at", workspace=workspace)
        saved = response.json()
        return None if saved is None else datetime.fromisoformat(saved) - _clock_skew(response)

    def measure(self, pod_ids: Collection[str], instance_id: str) -> Measurements:
        return decode_measurements(self._request("measure", pod_ids=list(pod_ids)).json(), instance_id)

    def get_isolation(self) -> Isolation:
        return decode_isolation(self._request("isolation").json())

    def drop_workspace(self, workspace: str) -> None:
        self._request("drop_workspace", workspace=workspace)

    def _request_chunk(self, endpoint: str, **body: Any) -> LogChunk:
        response = self._request(endpoint, **body)
        return decode_chunk(response.headers[LOG_HEADER], response.content)

    def _request(self, endpoint: str, **body: Any) -> httpx.Response:
        try:
            response = self._client.post(f"{self._base}/{endpoint}", json=body, headers=self._headers)
        except httpx.HTTPError as error:
            raise AgentUnreachable(f"the node at {self._base} is not responding: {error!r}") from error
        if response.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            raise ValueError(response.text[:300])
        if response.status_code != httpx.codes.OK:
            raise RuntimeFailure(
                f"the node at {self._base} responded with {response.status_code}: {response.text[:300]}"
            )
        return response


def enable_keepalive(connection: socket.socket) -> None:
    """Enable TCP keepalive, which detects a dead peer within about a minute even if no data is sent."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 4)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _decode_files(response: httpx.Response) -> PodFiles:
    answer = response.json()
    return PodFiles(tuple(PodFile(**each) for each in answer["files"]), answer["skipped"])


def _decode_changes(response: httpx.Response) -> VolumeChanges:
    answer = response.json()
    deleted = tuple((path, etag) for path, etag in answer["deleted"])
    return VolumeChanges(tuple(PodFile(**each) for each in answer["files"]), deleted, answer["skipped"])


def _clock_skew(response: httpx.Response) -> timedelta:
    """Return how far the node's clock is ahead, or zero if the difference is small."""
    skew = parsedate_to_datetime(response.headers["Date"]) - datetime.now(UTC)
    return skew if abs(skew) >= SKEW_MIN else timedelta()


def _shift_times(report: PodReport, skew: timedelta) -> PodReport:
    if not skew:
        return report
    started_at, ended_at = report.started_at, report.ended_at
    return replace(
        report,
        started_at=None if started_at is None else started_at - skew,
        ended_at=None if ended_at is None else ended_at - skew,
    )
