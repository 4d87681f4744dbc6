"""Here one web process serves on a port of its own, behind a proxy: `python -m berth.up.serve --port N`."""

import argparse
import os

import uvicorn

GRACE = 10  # seconds for requests that are under way, and for people who watch, when it is told to end


def main() -> None:
    """Whom to believe about callers' addresses stands in FORWARDED_ALLOW_IPS; this machine unless set."""
    parser = argparse.ArgumentParser(prog="python -m berth.up.serve")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.settings")
    uvicorn.run(
        "berth.asgi:application",
        host=asked.host,
        port=asked.port,
        access_log=False,
        log_config=None,  # the settings say what the log looks like
        timeout_graceful_shutdown=GRACE,
        lifespan="off",
        server_header=False,
    )


if __name__ == "__main__":
    main()
