"""Format failure kinds and restart counts."""

from collections.abc import Mapping


def format_failure(kind: int | str) -> str:
    """Return a failure kind as text: `exit code 75`, `SIGKILL` or `out_of_memory`."""
    return f"exit code {kind}" if str(kind).isdigit() else str(kind)


def format_retries(counts: Mapping[str, int]) -> str:
    """Return restart counts by failure kind, most frequent first."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{count} after {format_failure(kind)}" for kind, count in ordered)
