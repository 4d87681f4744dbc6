"""Entry point of `python -m berth.server.up.serve`: one web process, on a port or on an open socket."""

import argparse
import os
import socket

import uvicorn

from berth.server.front.server import config

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
    uvicorn.Server(config(timeout_graceful_shutdown=SUPERVISED_GRACE)).run(sockets=[listening])


if __name__ == "__main__":
    main()
