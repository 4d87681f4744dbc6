"""Run all benchmarks. Use `make bench`, or `make bench ARGS=--tiny` for a smoke test."""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.setup.arguments import TINY

ALL = (
    "decide", "ticks", "turns", "tenants", "openb", "rest_submit", "pages", "dry_run",
    "explaining", "smallest_change", "kueue", "load", "pools_at_size", "elastic_service", "latency",
    "whole_system", "arrays", "kubernetes",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help=TINY)
    tiny = ["--tiny"] if parser.parse_args().tiny else []
    status = 0
    for name in ALL:
        print(f"\n== {name}", flush=True)
        status |= subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", *tiny], cwd=Path(__file__).parents[1], check=False
        ).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
