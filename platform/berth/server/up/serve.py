"""Entry point of `python -m berth.server.up.serve`: one web process, on a port or on an open socket."""

import argparse
import os
import socket

import uvicorn

from berth.server.front.server import config
from berth.server.up.address import WAITING_CONNECTIONS

GRACE = 10  # seconds for open requests and pages after SIGTERM
SUPERVISED_GRACE = 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m berth.server.up.serve")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--fd", type=int, help="listening socket to use instead of an address")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
    if options.fd is not None:
        serve(socket.socket(fileno=options.fd))
    else:
        uvicorn.Server(config(host=options.host, port=options.port, timeout_graceful_shutdown=GRACE)).run()


def serve(listening: socket.socket) -> None:
    """Serve HTTP and WebSockets on a socket that the supervisor opened, which other processes may share."""
    # asyncio accepts as many connections at once as may wait, so the first process would take all of them.
    SharedServer(config(timeout_graceful_shutdown=SUPERVISED_GRACE, backlog=1)).run(sockets=[listening])


class SharedServer(uvicorn.Server):
    """Web server that accepts one connection at a time, so that other processes get their share."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(WAITING_CONNECTIONS)  # asyncio has set this to the number accepted at once


if __name__ == "__main__":
    main()
