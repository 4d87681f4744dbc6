"""Fetch and follow the logs of pods."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from pools.kubernetes.api import Api, ApiError, Unreachable
from pools.kubernetes.logs import LogCopies
from pools.kubernetes.manifests import CONTAINER

log = logging.getLogger(__name__)

FOLLOWERS_MAX = 32
NO_LOG = (400, 404)  # the container has not started, or was deleted


def fetch_log(api: Api, path: str, since: str, size: int) -> bytes:
    """Return the log since a time with the time of each line, or nothing if there is no log."""
    try:
        return api.read(path, limitBytes=size, **_query(since))
    except ApiError as error:
        if error.status in NO_LOG:
            return b""
        raise


class LogFollowers:
    """Threads that copy the logs of pods that are being stopped, until their containers have ended."""

    def __init__(self, copies: LogCopies) -> None:
        self._copies = copies
        self._threads = ThreadPoolExecutor(FOLLOWERS_MAX, thread_name_prefix="kubernetes-logs")
        self._lock = threading.Lock()
        self._followed: set[str] = set()

    def follow(self, pod_id: str, api: Api, path: str) -> None:
        """Follow a log in the background, unless it is already followed."""
        with self._lock:
            if pod_id in self._followed:
                return
            self._followed.add(pod_id)
        self._threads.submit(self._follow, pod_id, api, path)

    def _follow(self, pod_id: str, api: Api, path: str) -> None:
        try:
            pending = b""
            for data in api.stream(path, follow="true", **_query(self._copies.since(pod_id))):
                lines, line_feed, pending = (pending + data).rpartition(b"\n")
                if line_feed:
                    self._copies.append(pod_id, lines + line_feed)
            self._copies.append(pod_id, pending)
        except (ApiError, Unreachable, OSError) as error:
            log.info("the log of pod %s could not be followed to its end: %s", pod_id, error)
        finally:
            with self._lock:
                self._followed.discard(pod_id)


def _query(since: str) -> dict[str, str]:
    query = {"container": CONTAINER, "timestamps": "true"}
    return {**query, "sinceTime": since} if since else query
