"""Look up image digests in a background thread, so that a slow registry delays only its own images."""

import asyncio
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from berth.core.values.images import ImageReference
from scheduler.registries.base import RegistryError, RegistryErrorKind, Resolution, RunKey

if TYPE_CHECKING:
    from scheduler.registries.client import RegistryClient
    from scheduler.registries.http_client import RegistryAccess

log = logging.getLogger(__name__)

LOOKUPS_PER_REGISTRY = 8  # maximum number of concurrent lookups per registry
NAME_LOOKUPS = 32  # number of threads for DNS lookups, which can hang


class HttpResolver:
    """Resolver that queries registries over HTTP, in a thread that starts with the first request."""

    def __init__(self, access: "RegistryAccess | None" = None) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._pending: set[RunKey] = set()
        self._results: dict[RunKey, Resolution] = {}
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: RegistryClient | None = None
        self._slots: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(LOOKUPS_PER_REGISTRY)
        )

    def request(self, key: RunKey, image: ImageReference, auth: str) -> None:
        with self._lock:
            if key in self._pending or key in self._results:
                return
            self._pending.add(key)
        asyncio.run_coroutine_threadsafe(self._resolve(key, image, auth), self._running_loop())

    def take_results(self, keys: Collection[RunKey]) -> Mapping[RunKey, Resolution]:
        with self._lock:
            results, self._results = self._results, {}
        return {key: result for key, result in results.items() if key in keys}

    def wake_fds(self) -> tuple[int, ...]:
        return (self._wake,)

    def clear_wakeups(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            from scheduler.registries.client import RegistryClient
            from scheduler.registries.http_client import RegistryAccess

            self._client = RegistryClient(self._access or RegistryAccess())
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(ThreadPoolExecutor(NAME_LOOKUPS, "registry-names"))
            threading.Thread(target=self._loop.run_forever, name="registries", daemon=True).start()
        return self._loop

    async def _resolve(self, key: RunKey, image: ImageReference, auth: str) -> None:
        assert self._client is not None
        try:
            async with self._slots[image.registry]:
                resolution = Resolution(digest=await self._client.fetch_digest(image, auth))
        except RegistryError as error:
            resolution = Resolution(error=error)
        except Exception as error:
            log.exception("the digest of %s could not be looked up", image)
            text = f"The digest of {image} could not be looked up: {error!r}."
            resolution = Resolution(error=RegistryError(RegistryErrorKind.FAILED, text))
        with self._lock:
            self._pending.discard(key)
            self._results[key] = resolution
        os.eventfd_write(self._wake, 1)
