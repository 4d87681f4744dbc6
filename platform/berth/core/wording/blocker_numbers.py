"""Labels and units of the numbers in pending reasons, for web pages and the terminal."""

from collections.abc import Mapping
from typing import Any

from berth.core.wording.words import format_amount, format_number

# Label of each entry, in display order.
_LABELS = {
    "queue": "queue",
    "cluster_quota": "cluster quota",
    "namespace": "namespace",
    "requested": "requested",
    "allocated": "allocated",
    "used": "used",
    "bound": "limit",
    "held": "held",
    "quota": "quota",
    "group_quota": "group quota",
    "group_allocated": "allocated in the group",
    "share": "fair share",
    "free": "free",
    "leaving": "held by stopping pods",
    "cordoned": "free on cordoned or draining nodes",
    "reserved": "free on nodes that serve another project",
    "avoided": "free on nodes where the workload failed",
    "biggest_block": "most free on one node",
    "missing": "missing",
    "most": "maximum",
    "held_nodes": "nodes held",
    "reclaimable": "reclaimable",
    "protected": "protected",
    "by_runtime": "within their minimum runtime",
    "non_preemptible": "non-preemptible",
    "seconds": "remaining",
}
# Entries whose values are amounts in the engine's units. The entry `resource` names the resource.
AMOUNTS = frozenset(_LABELS) - {"cluster_quota", "namespace", "queue", "held_nodes", "seconds"}
# Entries that are omitted, because the message already contains them.
_OMITTED = frozenset(
    {"resource", "refusal", "until", "action", "takes_turns", "awaited", "state", "group", "group_pools"}
    | {"code", "why", "is_largest_pool", "pool"}
)
_OMITTED_IF_ZERO = frozenset({"protected", "by_runtime", "non_preemptible"})


def format_numbers(numbers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the label and text of each number, for example ("most free on one node", "1 GPU")."""
    resource = str(numbers.get("resource") or "gpu")
    keys = [key for key in _LABELS if key in numbers]
    keys += sorted(numbers.keys() - _LABELS.keys() - _OMITTED)
    return [
        (_LABELS.get(key, key.replace("_", " ")), _format_number(key, numbers[key], resource))
        for key in keys
        if numbers[key] or (key not in _OMITTED_IF_ZERO and _is_value_set(key, numbers[key]))
    ]


def _is_value_set(key: str, value: Any) -> bool:
    """Return whether the value is set. For an amount, None counts as a value, because it means unlimited."""
    return value is not None or key in AMOUNTS


def _format_number(key: str, value: Any, resource: str) -> str:
    if value is None:
        return "unlimited"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if key in AMOUNTS:
        return format_amount(resource, int(value)) if value else "0"
    return f"{format_number(value)} s" if key == "seconds" else format_number(value)
