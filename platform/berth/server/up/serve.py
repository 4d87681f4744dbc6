"""Entry point of `python -m berth.server.up.serve`: one web process, on a port or on an open socket."""

import argparse
import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn

from berth.server.front.server import uvicorn_config
from berth.server.up.address import WAITING_CONNECTIONS

GRACE = 10  # seconds that open requests and pages have to finish after SIGTERM
SUPERVISED_GRACE = 3
TICK_SECONDS = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m berth.server.up.serve")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--fd", type=int, help="File descriptor of a listening socket, instead of an address."
    )
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
    if options.fd is not None:
        serve(socket.socket(fileno=options.fd))
    else:
        uvicorn.Server(
            uvicorn_config(host=options.host, port=options.port, timeout_graceful_shutdown=GRACE)
        ).run()


def serve(listening: socket.socket) -> None:
    """Serve HTTP and WebSockets on a socket that the supervisor opened and other processes may share."""
    # asyncio accepts as many connections at once as the backlog allows, so the backlog is 1.
    SharedServer(uvicorn_config(timeout_graceful_shutdown=SUPERVISED_GRACE, backlog=1)).run(
        sockets=[listening]
    )


class SharedServer(uvicorn.Server):
    """Web server that accepts one connection at a time, so that connections spread over all processes.

    While it is idle, it wakes once per second instead of ten times.
    """

    _end: Callable[[], object] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            # Restore the real backlog: asyncio has set it to the number of connections to accept at once.
            listening.listen(WAITING_CONNECTIONS)

    async def main_loop(self) -> None:
        ended = asyncio.Event()
        self._end = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
        while not await self.on_tick(0):  # `on_tick` also sets the Date header of responses
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), TICK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._end is not None:
            self._end()


if __name__ == "__main__":
    main()
