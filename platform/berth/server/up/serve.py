"""Entry point of `python -m berth.server.up.serve`: one web process on a port behind a proxy."""

import argparse
import os

import uvicorn

from berth.server.front.server import config

GRACE = 10  # seconds for open requests and pages after SIGTERM


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m berth.server.up.serve")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
    uvicorn.Server(config(host=options.host, port=options.port, timeout_graceful_shutdown=GRACE)).run()


if __name__ == "__main__":
    main()
