"""Parse disruption budgets; the server validates them."""

import re
from collections.abc import Iterable
from typing import Any

from berth.cli.exits import BadInput

KEYS = ("nodes", "reasons", "schedule", "duration", "zone")
ENTRY = re.compile(rf",\s*(?=(?:{'|'.join(KEYS)})=)")  # a schedule has commas of its own
ALLOWED = f"nodes=N or N%, and {', '.join(KEYS[1:])}, each KEY=VALUE, with commas between"


def budgets_of(entries: Iterable[str]) -> list[dict[str, Any]]:
    return [_budget(entry) for entry in entries if entry.strip()]


def _budget(entry: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in ENTRY.split(entry.strip()):
        key, equals, value = part.partition("=")
        if not equals or key not in KEYS or key in found:
            raise BadInput(f"--budget: given {entry!r}; allowed: {ALLOWED}")
        found[key] = [each for each in re.split(r"[,+ ]+", value) if each] if key == "reasons" else value
    return found
