"""Entry point of `python -m berth.server.up`."""

import argparse
import sys

from berth.server.up.start import DEFAULT_HOST, up


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m berth.server.up", description="Run Berth until Ctrl-C.")
    parser.add_argument("--host", default=DEFAULT_HOST)
    parser.add_argument(
        "--port", type=int, default=None, help="Port. Defaults to 8000 or the next free port."
    )
    parser.add_argument(
        "--demo", action="store_true", help="Create a demo organization in an empty database."
    )
    options = parser.parse_args()
    return up(host=options.host, port=options.port, demo=options.demo)


if __name__ == "__main__":
    sys.exit(main())
