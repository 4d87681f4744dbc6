"""Here we serve HTTP and WebSockets on a socket that the supervisor holds."""
import socket
import sys

import uvicorn


def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
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
