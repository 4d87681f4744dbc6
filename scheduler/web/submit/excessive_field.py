"""Form field whose value makes the workload unschedulable."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.core.wording.words import format_amount
from projects.services.workloads.prediction import Prediction
from scheduler.engine.plan import Reason
from scheduler.web.submit.form.presentation import RenderedField, RenderedForm

FIELDS = ("gpu", "cpu", "memory_mib", "gpu_memory_mib")
GENERAL_WARNING = "The workload can never start with this value."


@dataclass(frozen=True, slots=True)
class ExcessiveField:
    label: str
    shown: RenderedField


def mark_excessive_field(
    prediction: Prediction, data: Mapping[str, Any], form: RenderedForm
) -> ExcessiveField | None:
    """Add a warning to the form field whose value exceeds every node or pool, and return the field.

    Return None if no single field is the reason.
    """
    if prediction.outcome != "unschedulable" or not prediction.blockers:
        return None
    first = prediction.blockers[0]
    numbers = first["numbers"]
    path = _excessive_path(first["reason"], numbers, data.get("roles"))
    if path not in form.labelled_fields:
        return None
    label, shown = form.labelled_fields[path]
    shown.warning = _warning(first["reason"], numbers)
    return ExcessiveField(label, shown)


def _excessive_path(reason: str, numbers: Mapping[str, Any], roles: Any) -> str:
    """Return the document path of the value that is too large, such as `roles[0].gpu`, or "" if unknown."""
    if not isinstance(roles, list) or not all(isinstance(role, dict) for role in roles):
        return ""
    names = [role.get("name", "worker") for role in roles]
    if reason == Reason.EXCEEDS_NODE_SHAPE and numbers.get("resource") in FIELDS:
        if numbers["role"] not in names:
            return ""
        index = names.index(numbers["role"])
        return "" if "limit" in roles[index] else f"roles[{index}].{numbers['resource']}"
    if reason == Reason.EXCEEDS_POOL_MAX and len(roles) == 1:
        return "roles[0].min" if "min" in roles[0] else "roles[0].replicas"
    return ""


def _warning(reason: str, numbers: Mapping[str, Any]) -> str:
    """Return the largest possible value if it is the same for all allowed pools."""
    is_for_all_pools = numbers.get("is_largest_pool", True)
    if reason != Reason.EXCEEDS_NODE_SHAPE or numbers.get("beside") or not is_for_all_pools:
        return GENERAL_WARNING
    return f"No matching node has more than {format_amount(str(numbers['resource']), numbers['most'])}."
