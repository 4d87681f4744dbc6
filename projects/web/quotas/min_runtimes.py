"""Form fields for the minimum runtimes of a department or project, with the values that they inherit."""

from django import forms

from pools.models import NodePool
from pools.web.duration_field import format_exactly
from projects.models import Project
from projects.models.tenants import Tenant

MIN_RUNTIMES = {
    "reclaim_min_runtime": "Workloads run at least this long before they are reclaimed for another queue.",
    "preempt_min_runtime": (
        "Workloads run at least this long before they are preempted for a higher priority in their project."
    ),
}
NO_BREAK = "\N{NO-BREAK SPACE}"


def set_min_runtime_help(field: forms.Field, name: str, owner: Tenant | None) -> None:
    """Set a field's help text and placeholder to the value that an empty field inherits.

    `owner` is None for a department or project that does not exist yet.
    """
    value, source = inherited_min_runtime(name, owner)
    field.widget.attrs["placeholder"] = f"inherits {value}"
    inherited = f"An empty field inherits {value.replace(' ', NO_BREAK)} from {source}."
    field.help_text = f"{MIN_RUNTIMES[name]} For example, 30{NO_BREAK}min. {inherited}"


def inherited_min_runtime(name: str, owner: Tenant | None) -> tuple[str, str]:
    """Return the inherited minimum runtime, such as "5 min", and the name of its source."""
    if isinstance(owner, Project):
        seconds = getattr(owner.department, name)
        if seconds is not None:
            return format_exactly(seconds), f"department {owner.department.name}"
    values = sorted(set(NodePool.objects.order_by().values_list(name, flat=True).distinct()))
    if not values:
        return "the value", "each node pool"
    lowest, highest = format_exactly(values[0]), format_exactly(values[-1])
    return (lowest if lowest == highest else f"{lowest} to {highest}"), "the node pools"
