"""Thread that serves the channels of all clusters in this process."""

import asyncio
import logging
import socket
import threading
from collections import Counter
from concurrent.futures import TimeoutError as LateError

from pools.kubernetes.api import Api
from pools.kubernetes.channels.bridge import Bridge
from pools.runtimes.base import ChannelRefused, RuntimeFailure

log = logging.getLogger(__name__)

MAX_CHANNELS = 32  # per pod
OPEN_SECONDS = 40.0
TOO_MANY = f"it has {MAX_CHANNELS} open shells and transfers, which is the maximum. Close some first"


class ChannelLoop:
    """Event loop in a thread of its own, which starts with the first channel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, api: Api, pod: str) -> socket.socket:
        """Return a connection to a new channel of the pod at this path.

        Raises ChannelRefused or RuntimeFailure.
        """
        with self._lock:
            if self._open[pod] >= MAX_CHANNELS:
                raise ChannelRefused(TOO_MANY)
            self._open[pod] += 1
            loop = self._start()
        ours, theirs = socket.socketpair()
        opening = asyncio.run_coroutine_threadsafe(self._begin(api, pod, theirs), loop)
        try:
            opening.result(OPEN_SECONDS)
        except BaseException as error:
            opening.cancel()
            ours.close()
            if isinstance(error, LateError):
                raise RuntimeFailure(f"{api.server} is not responding") from None
            raise
        return ours

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="kubernetes-channels", daemon=True).start()
        return self._loop

    async def _begin(self, api: Api, pod: str, connection: socket.socket) -> None:
        bridge = Bridge(api, pod)
        try:
            await bridge.open()
        except BaseException:
            connection.close()
            self._release(pod)
            raise
        task = asyncio.create_task(self._serve(bridge, pod, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, bridge: Bridge, pod: str, connection: socket.socket) -> None:
        try:
            await bridge.serve(connection)
        except Exception:
            log.exception("a channel of %s failed", pod)
        finally:
            self._release(pod)

    def _release(self, pod: str) -> None:
        with self._lock:
            self._open[pod] -= 1
            if not self._open[pod]:
                del self._open[pod]


CHANNELS = ChannelLoop()
