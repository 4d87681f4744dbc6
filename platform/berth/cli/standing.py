"""Convert the engine's numbers into display units: blockers and queues."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from berth.cli.text import local, number, plain, safe
from berth.core.words import UNSAID, amount

NAMES = {
    "queue": "queue", "asked": "asked", "allocated": "held", "bound": "may hold", "quota": "quota",
    "share": "fair share", "free": "free", "biggest_block": "largest free block", "missing": "missing",
    "most": "at most", "takeable": "may be taken", "protected": "protected",
}  # fmt: skip
AMOUNTS = frozenset(NAMES) - {"queue"}
STANDINGS = ("quota", "share", "allocated", "requested", "limit")


def blocker_numbers(numbers: Mapping[str, Any]) -> str:
    """asked 4 GPUs, free 0 GPUs: the engine counts GPUs and CPUs in thousandths."""
    resource = str(numbers.get("resource") or "gpu")
    order = [name for name in NAMES if name in numbers]
    order += sorted(name for name in numbers if name not in NAMES and name not in UNSAID)
    return ", ".join(
        f"{NAMES.get(name, safe(name).replace('_', ' '))} {_spoken(name, numbers[name], resource)}"
        for name in order
    )


def expected_line(at: datetime | None, because: str) -> str:
    """When it starts as far as anybody knows; empty where nothing was said."""
    if at is not None:
        return f"Expected to start by {local(at)}" + (f", {because}." if because else ".")
    return f"When it starts is unknown: {because}." if because else ""


def queue_lines(queue: Any) -> Iterator[str]:
    """The project and its department, as the last cycle saw them."""
    for kind in ("project", "department"):
        standing = (queue or {}).get(kind)
        if isinstance(standing, dict):
            told = ", ".join(
                f"{'fair share' if name == 'share' else name} {_gpus(standing[name])}"
                for name in STANDINGS
                if name in standing
            )
            yield f"{kind} {standing.get('name')}: {told} (GPUs in {standing.get('pool')})"
            for line in _how(standing):
                yield f"  {line}"


def _how(standing: Mapping[str, Any]) -> Iterator[str]:
    """How its share comes about: of GPUs, or where it asks for none, of what it asks for."""
    told = standing.get("how") or {}
    asked = standing.get("requested") or {}
    chosen = ["gpu"] if asked.get("gpu") else [name for name in told if asked.get(name)]
    for resource in chosen or ["gpu"]:
        yield from map(str, told.get(resource) or ())


def _spoken(name: str, value: Any, resource: str) -> str:
    if name not in AMOUNTS or not isinstance(value, int | float):
        return plain(value)
    return amount(resource, int(value))


def _gpus(amounts: Any) -> str:
    if not isinstance(amounts, dict):
        return "-"
    value = amounts.get("gpu")
    return "unlimited" if value is None else number(value)
