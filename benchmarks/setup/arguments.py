"""Command-line options shared by all benchmarks."""

import argparse

TINY = "Smallest size that still runs all steps. Its results are meaningless and are not stored."


def parser(description: str | None) -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared.add_argument("--tiny", action="store_true", help=TINY)
    return shared
