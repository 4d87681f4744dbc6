"""Rules for editing pending workloads."""

from collections.abc import Callable, Mapping

from berth.core.spec import GroupShape, RoleShape, WorkloadSpec, build_tree
from berth.core.values.amounts import MILLI
from berth.core.values.durations import format_duration
from berth.core.wording.words import format_amount, format_mib, format_number

# These keys determine how a workload is stored, named and controlled, so edits cannot change them.
FIXED_KEYS = ("name", "project", "kind", "submitted", "array", "service")
RESOURCES: Mapping[str, Callable[[RoleShape], int]] = {
    "gpu": lambda role: role.gpu * role.devices,
    "gpu_memory_mib": lambda role: role.gpu_memory_mib * role.devices,
    "cpu": lambda role: role.cpu,
    "memory_mib": lambda role: role.memory_mib,
}


def find_increases(before: WorkloadSpec, after: WorkloadSpec) -> list[str]:
    """Describe each requested amount that an edit increases."""
    old_tree, new_tree = build_tree(before), build_tree(after)
    increases: list[str] = []
    for resource, amount in RESOURCES.items():
        for total in (_smallest_gang_total, _max_replicas_total):
            old, new = total(old_tree, amount), total(new_tree, amount)
            if new > old:
                increases.append(f"{format_amount(resource, new)} instead of {_bare_amount(resource, old)}")
                break
    old_runtime, new_runtime = before.max_runtime, after.max_runtime
    if old_runtime is not None and (new_runtime is None or new_runtime > old_runtime):
        runtime = (
            "unlimited runtime" if new_runtime is None else f"a max runtime of {format_duration(new_runtime)}"
        )
        increases.append(f"{runtime} instead of {format_duration(old_runtime)}")
    return increases


def _bare_amount(resource: str, amount: int) -> str:
    """Format an amount without the name of its resource, such as "2", "24 GiB" or "none"."""
    if not amount:
        return "none"
    return format_mib(amount) if resource.endswith("_mib") else format_number(amount / MILLI)


def _smallest_gang_total(node: GroupShape | RoleShape, amount: Callable[[RoleShape], int]) -> int:
    if isinstance(node, RoleShape):
        return amount(node) * node.min
    return sum(sorted(_smallest_gang_total(child, amount) for child in node.children)[: node.need])


def _max_replicas_total(node: GroupShape | RoleShape, amount: Callable[[RoleShape], int]) -> int:
    if isinstance(node, RoleShape):
        return amount(node) * node.max
    return sum(_max_replicas_total(child, amount) for child in node.children)
