"""Download objects from S3 through signed URLs, several at a time."""

from __future__ import annotations

import threading

from pools.runtimes.shim.transfers.cache import Cache
from pools.runtimes.shim.transfers.child import FAILED, RETRY, TransferFailure
from pools.runtimes.shim.transfers.http import READ_SECONDS, TEMPORARY, build_opener
from pools.runtimes.shim.transfers.listing import Object

TYPE_CHECKING = False  # avoids importing `collections.abc`, which takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from urllib.request import OpenerDirector

THREADS = 8
BATCH = 200  # maximum number of URLs signed at once, because signed URLs expire
BLOCK = 1024 * 1024
REPORT_WAIT = 0.5
_CHANGED = (404, 412)


class ObjectChanged(Exception):
    """Raised if an object has changed or been deleted since it was listed."""


def download_objects(
    missing: list[Object], cache: Cache, sign: Callable[[list[Object]], list[str]],
    report: Callable[[int, int], None],
) -> None:  # fmt: skip
    """Download the missing objects into the cache. Raises TransferFailure, ObjectChanged and OSError.

    `sign` returns a URL for each object. `report` receives the numbers of objects and bytes so far.
    """
    downloads = _Downloads(cache)
    for start in range(0, len(missing), BATCH):
        batch = missing[start : start + BATCH]
        downloads.queue = list(zip(batch, sign(batch)))[::-1]
        threads = [
            threading.Thread(target=downloads.download_queued_objects, daemon=True) for _ in batch[:THREADS]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(REPORT_WAIT)
                report(downloads.count, downloads.received)
        if downloads.error is not None:
            raise downloads.error


class _Downloads:
    """State that the download threads share. The first error stops all of them."""

    def __init__(self, cache: Cache) -> None:
        self._cache, self._lock = cache, threading.Lock()
        self._opener: OpenerDirector | None = None
        self.queue: list[tuple[Object, str]] = []
        self.error: BaseException | None = None
        self.count = self.received = 0

    def download_queued_objects(self) -> None:
        while True:
            with self._lock:
                if not self.queue or self.error is not None:
                    return
                entry, url = self.queue.pop()
                self._opener = self._opener or build_opener(url, "")
            try:
                self._download(entry, url, self._opener)
            except BaseException as error:  # the thread that waits for all others reports the error
                self.error = self.error or error
                return
            with self._lock:
                self.count += 1

    def _download(self, entry: Object, url: str, opener: OpenerDirector) -> None:
        import http.client
        import socket
        import ssl
        import urllib.error
        import urllib.request

        # `socket.timeout` differs from TimeoutError on Python 3.9.
        failures = (
            urllib.error.URLError,
            http.client.HTTPException,
            socket.timeout,
            ssl.SSLError,
            ConnectionError,
        )
        headers = {"If-Match": entry.etag}
        request = urllib.request.Request(url, headers=headers)  # noqa: S310
        draft, size = self._cache.draft_path(entry), 0
        try:
            with opener.open(request, timeout=READ_SECONDS) as response, open(draft, "wb") as file:
                while data := response.read(BLOCK):
                    file.write(data)
                    size += len(data)
                    with self._lock:
                        self.received += len(data)
                    if size > entry.size:
                        raise ObjectChanged
        except urllib.error.HTTPError as error:
            _raise_status_error(error)
        except failures as error:
            # Report only the kind of error: the reason may contain an address that only admins may see.
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or type(reason).__name__
            raise TransferFailure(RETRY, f"the object store is not responding: {text}") from error
        if size < entry.size:
            raise TransferFailure(RETRY, "the object store closed the connection")
        self._cache.store(entry)


def _raise_status_error(error: Exception) -> None:
    """Raise the error for an HTTP status, without revealing the URL."""
    import re

    status = int(getattr(error, "code", 0))
    if status in _CHANGED:
        raise ObjectChanged from error
    text = error.read(4096).decode("utf-8", "replace")  # type: ignore[attr-defined]
    match = re.search(r"<Code>(\w+)</Code>", text)
    code = f" ({match.group(1)})" if match else ""
    if status in (301, 302, 307, 308):
        raise TransferFailure(
            FAILED, f"the object store responded with {status}{code}. Set the volume's region"
        ) from error
    kind = RETRY if status in TEMPORARY or _is_expired(text) else FAILED
    raise TransferFailure(kind, f"the object store responded with {status}{code}") from error


def _is_expired(text: str) -> bool:
    return "Request has expired" in text or "ExpiredToken" in text
