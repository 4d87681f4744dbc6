"""Command-line options that all benchmarks share."""

import argparse

TINY = "The smallest size that still runs everything; its figures mean nothing and are not kept."


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--tiny", action="store_true", help=TINY)
    return made
