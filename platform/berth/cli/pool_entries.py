"""Parse the volumes and disruption budgets of pools."""

import re
from collections.abc import Iterable
from typing import Any

from berth.cli.exits import invalid_value

BUDGET_KEYS = ("nodes", "reasons", "schedule", "duration", "zone")
BUDGET_SEPARATOR = re.compile(rf",\s*(?=(?:{'|'.join(BUDGET_KEYS)})=)")  # schedules may contain commas
BUDGET_ALLOWED = f"nodes=N or N%, and {', '.join(BUDGET_KEYS[1:])}, as comma-separated KEY=VALUE"


def parse_budgets(entries: Iterable[str]) -> list[dict[str, Any]]:
    return [_parse_budget(entry) for entry in entries if entry.strip()]


def _parse_budget(entry: str) -> dict[str, Any]:
    budget: dict[str, Any] = {}
    for part in BUDGET_SEPARATOR.split(entry.strip()):
        key, equals, value = part.partition("=")
        if not equals or key not in BUDGET_KEYS or key in budget:
            raise invalid_value("--budget", "is not a disruption budget", entry, BUDGET_ALLOWED)
        budget[key] = (
            [reason for reason in re.split(r"[,+ ]+", value) if reason] if key == "reasons" else value
        )
    return budget


def parse_volume(entry: str) -> dict[str, object]:
    """Parse NAME=SOURCE with options, such as datasets=/mnt/data,read_write,projects=a+b,nodes=disk=fast."""
    allowed = "NAME=SOURCE[,read_write][,projects=NAME+NAME][,nodes=KEY=VALUE]"
    first, *options = entry.split(",")
    name, equals, source = first.partition("=")
    if not equals:
        raise invalid_value("--volume", "is not a volume", entry, allowed)
    labels: dict[str, str] = {}
    volume: dict[str, object] = {"name": name, "source": source, "nodes": labels}
    for option in options:
        key, equals, value = option.partition("=")
        label, label_equals, label_value = value.partition("=")
        if option in ("read_only", "read_write"):
            volume["access"] = option
        elif key == "projects" and equals:
            volume["projects"] = value.split("+")
        elif key == "nodes" and label_equals:
            labels[label] = label_value
        else:
            raise invalid_value("--volume", "has an unknown option", option, allowed)
    return volume
