"""Here we serve HTTP and WebSockets on a socket that the supervisor holds."""
import importlib
import os
import socket
import sys

import uvicorn


def main() -> None:
    """The second argument is a pipe whose other end is closed once the tables are there: until then we load,
    and who calls waits in line."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    importlib.import_module("berth.asgi")
    os.read(int(sys.argv[2]), 1)
    config = uvicorn.Config(
        "berth.asgi:application",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=3,
        lifespan="off",
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
