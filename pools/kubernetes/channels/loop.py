"""Thread that serves all channels to Kubernetes pods in this process."""

import asyncio
import logging
import socket
import threading
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Any, TypeVar

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels.bridge import Bridge
from pools.kubernetes.channels.forwarding import KnownPorts
from pools.kubernetes.channels.ports import PortConnection, connect_port
from pools.runtimes.base import ChannelRejected, RuntimeFailure

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CHANNELS = 32  # per pod
OPEN_SECONDS = 40.0
TOO_MANY = f"it has {MAX_CHANNELS} open shells and transfers, which is the maximum. Close some first"


class ChannelLoop:
    """Event loop in its own thread, which starts with the first channel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ports = KnownPorts()

    def open(self, api: Api, pod: str) -> socket.socket:
        """Open a channel to a pod and return its connection.

        `pod` is the pod's API path. If the cluster rejects the request later, the channel's status contains
        the reason. Raises ChannelRejected if the pod has too many channels.
        """
        with self._lock:
            if self._open[pod] >= MAX_CHANNELS:
                raise ChannelRejected(TOO_MANY)
            self._open[pod] += 1
        ours, theirs = socket.socketpair()
        self.submit(self._begin(api, pod, theirs))
        return ours

    def open_port(self, api: Api, pod: str, port: int) -> socket.socket:
        """Open a connection to a pod's port and return it.

        `pod` is the pod's API path. The connection ends immediately if no process listens on the port. It
        does not count as a channel. Raises ChannelRejected or RuntimeFailure.
        """
        ours, theirs = socket.socketpair()
        opening = self.submit(self._begin_port(api, pod, port, theirs))
        try:
            opening.result(OPEN_SECONDS)
        except BaseException as error:
            opening.cancel()
            ours.close()
            if isinstance(error, LateError):
                raise RuntimeFailure(f"{api.server} is not responding") from None
            raise
        return ours

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        with self._lock:
            loop = self._start()
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="kubernetes-channels", daemon=True).start()
        return self._loop

    async def _begin(self, api: Api, pod: str, connection: socket.socket) -> None:
        self._run(self._serve(Bridge(api, pod, self._ports), pod, connection))

    async def _begin_port(self, api: Api, pod: str, port: int, connection: socket.socket) -> None:
        try:
            opened = await connect_port(api, pod, port)
        except BaseException:
            connection.close()
            raise
        self._run(self._relay(opened, pod, connection))

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, opened: PortConnection, pod: str, connection: socket.socket) -> None:
        try:
            await opened.relay(connection)
        except ChannelRejected as rejection:
            log.info("a connection to a port of %s ended: %s", pod, rejection)
        except Exception:
            log.exception("a connection to a port of %s failed", pod)

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
