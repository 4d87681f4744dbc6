"""Here we run every measured scenario, one after the other: `make bench`."""

import subprocess
import sys
from pathlib import Path

ALL = (
    "decide", "ticks", "turns", "tenants", "openb", "rest_submit", "pages", "dry_run",
    "pools_at_size", "elastic_service", "whole_system",
)  # fmt: skip


def main() -> int:
    ended = 0
    for name in ALL:
        print(f"\n== {name}", flush=True)
        ended |= subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}"], cwd=Path(__file__).parents[1], check=False
        ).returncode
    return ended


if __name__ == "__main__":
    sys.exit(main())
