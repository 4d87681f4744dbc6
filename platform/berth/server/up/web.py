"""Serve HTTP and WebSockets on a socket that the supervisor opened."""

import os
import socket
import sys

import uvicorn

from berth.server.front.server import config


def main() -> None:
    """Load the application, then serve requests once the database tables exist.

    The second argument is a pipe whose other end is closed once the tables exist. Clients that connect
    earlier wait in the socket's queue.
    """
    listening = socket.socket(fileno=int(sys.argv[1]))
    ready = config(timeout_graceful_shutdown=3)
    os.read(int(sys.argv[2]), 1)
    uvicorn.Server(ready).run(sockets=[listening])


if __name__ == "__main__":
    main()
