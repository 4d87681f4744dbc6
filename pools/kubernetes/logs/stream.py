"""Fetch and follow pod logs."""

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from pools.kubernetes.api_server.api import Api, ApiError, Unreachable
from pools.kubernetes.logs.copies import LogCopies
from pools.kubernetes.manifests import CONTAINER

log = logging.getLogger(__name__)

FOLLOWERS_MAX = 32
PENDING_MAX = 1024 * 1024  # maximum bytes of a line in memory; longer lines are copied in pieces
SILENCE_SECONDS = 60.0  # maximum time without data after the grace period
NO_LOG = (400, 404)  # HTTP statuses for containers that have not started or have been deleted


def fetch_log(api: Api, path: str, since: str, size: int) -> bytes:
    """Return the pod's log since a time, with a timestamp on each line, or b"" if there is no log."""
    try:
        return api.read(path, limitBytes=size, **_query_parameters(since))
    except ApiError as error:
        if error.status in NO_LOG:
            return b""
        raise


class LogFollowers:
    """Threads that copy the logs of stopping pods until their containers end."""

    def __init__(self, copies: LogCopies) -> None:
        self._copies = copies
        self._threads = ThreadPoolExecutor(FOLLOWERS_MAX, thread_name_prefix="kubernetes-logs")
        self._lock = threading.Lock()
        self._followed: set[str] = set()

    def follow(self, pod_id: str, api: Api, path: str, grace_seconds: int) -> None:
        """Copy a growing log in the background, unless another thread already copies it."""
        with self._lock:
            if pod_id in self._followed:
                return
            self._followed.add(pod_id)
        self._threads.submit(self._follow, pod_id, api, path, grace_seconds + SILENCE_SECONDS)

    def _follow(self, pod_id: str, api: Api, path: str, silence_seconds: float) -> None:
        try:
            query = _query_parameters(self._copies.last_time(pod_id))
            copy_stream(self._copies, pod_id, api.stream(path, silence_seconds, follow="true", **query))
        except (ApiError, Unreachable, OSError) as error:
            log.info("the log of pod %s could not be followed to its end: %s", pod_id, error)
        finally:
            with self._lock:
                self._followed.discard(pod_id)


def copy_stream(copies: LogCopies, pod_id: str, stream: Iterable[bytes]) -> None:
    """Append the lines of a stream to the copy. Hold at most `PENDING_MAX` bytes of a line in memory."""
    pending, in_line = b"", False
    end: int | None = None  # size of the copy with a partial line; None if the whole line is copied
    for data in stream:
        text = pending + data
        if in_line:
            part, line_feed, text = text.partition(b"\n")
            end, in_line = copies.append_to_last_line(pod_id, part + line_feed, end), not line_feed
        lines, line_feed, pending = text.rpartition(b"\n")
        if line_feed:
            copies.append(pod_id, lines + line_feed)
        if len(pending) >= PENDING_MAX:
            end, in_line, pending = copies.append(pod_id, pending), True, b""
    copies.append(pod_id, pending)


def _query_parameters(since: str) -> dict[str, str]:
    query = {"container": CONTAINER, "timestamps": "true"}
    return {**query, "sinceTime": since} if since else query
