"""Validation rules that involve several fields of a document."""

from collections.abc import Iterator

from berth.core.problems import Problem, shown
from berth.core.spec.addresses import ALLOWED, channel_of
from berth.core.spec.ports import port_rules
from berth.core.spec.roles import RoleSpec
from berth.core.spec.service_rules import service_rules
from berth.core.spec.texts import COMMAND_MAX, ENV_MAX
from berth.core.spec.tree import smallest_gang, tree_of
from berth.core.spec.workload import CHILDREN_MAX, GroupSpec, WorkloadSpec

Placed = list[tuple[str, RoleSpec]]  # (path, role)


def broken_rules(spec: WorkloadSpec) -> Iterator[Problem]:
    """Yield contradictions between fields of the document, in the order of its keys."""
    roles: Placed = []
    tree_problems = list(_tree_rules("", spec, roles))
    yield from tree_problems
    yield from _size_rules("", spec)
    if len(roles) > CHILDREN_MAX:
        yield Problem("roles", "too many roles", f"{len(roles)}", f"at most {CHILDREN_MAX} in the whole tree")
    for path, role in roles:
        yield from role_rules(path, role)
    yield from _unique("role", [(path, role.name) for path, role in roles])
    yield from _scaling_rules(roles)
    yield from _idle_rules(roles)
    yield from _directory_rules(spec)
    if not tree_problems and smallest_gang(tree_of(spec)) == 0:
        yield Problem("roles", "the gang has no replicas", "min 0", "a required role with min of 1 or more")
    for number, notification in enumerate(spec.notifications):
        if channel_of(notification.to) is None:
            path = f"notifications[{number}].to"
            yield Problem(path, "is not an address", shown(notification.to), ALLOWED)
    yield from service_rules(spec)
    yield from port_rules(spec.ports, spec.kind)
    if spec.name in spec.depends_on:
        yield Problem("depends_on", "names the workload itself", shown(spec.name), "names of other workloads")


def role_rules(path: str, role: RoleSpec) -> Iterator[Problem]:
    """Yield the problems of a single role."""
    at = f"{path}." if path else ""
    yield from _count_rules(at, role)
    yield from _gpu_rules(at, role)
    if role.limit.cpu is not None and role.limit.cpu < role.cpu:
        yield Problem(f"{at}limit.cpu", "below the request", f"{role.limit.cpu}", f"{role.cpu} or more")
    if role.limit.memory_mib is not None and role.limit.memory_mib < role.memory_mib:
        received, least = role.limit.memory_mib, role.memory_mib
        yield Problem(f"{at}limit.memory_mib", "below the request", f"{received}", f"{least} or more")
    for number, toleration in enumerate(role.tolerations):
        if not toleration.key and toleration.operator == "Equal":
            where = f"{at}tolerations[{number}].key"
            yield Problem(where, "missing", "", "a key, or none together with operator Exists")
    yield from _size_rules(at, role)


def _count_rules(at: str, role: RoleSpec) -> Iterator[Problem]:
    if role.replicas is not None and (role.min is not None or role.max is not None):
        yield Problem(f"{at}replicas", "given together with min or max", f"{role.replicas}", "one of the two")
    elif role.max is not None and role.min is None:
        yield Problem(f"{at}min", "missing beside max", "", f"0 to {role.max}")
    elif role.minimum > role.maximum:
        yield Problem(f"{at}min", "above max", f"{role.min}", f"at most {role.max}")
    elif role.maximum == 0:
        yield Problem(f"{at}max", "no replica may ever run", "0", "max of 1 or more")


def _gpu_rules(at: str, role: RoleSpec) -> Iterator[Problem]:
    if role.gpu_memory_mib is not None and role.gpu:
        received = f"{role.gpu_memory_mib} with gpu {role.gpu}"
        yield Problem(f"{at}gpu_memory_mib", "given together with gpu", received, "one of the two")
    elif role.gpu_devices is not None and role.gpu >= 1:
        yield Problem(
            f"{at}gpu_devices",
            "given together with whole devices",
            f"{role.gpu_devices} with gpu {role.gpu}",
            "gpu_devices beside a part of a device (gpu below 1) or gpu_memory_mib",
        )
    elif role.gpu_devices is not None and not role.gpu and role.gpu_memory_mib is None:
        received, allowed = f"{role.gpu_devices}", "gpu or gpu_memory_mib too"
        yield Problem(f"{at}gpu_devices", "given without gpu", received, allowed)


def _tree_rules(path: str, node: WorkloadSpec | GroupSpec, roles: Placed) -> Iterator[Problem]:
    """Yield the problems of the tree, and append its roles with their paths to `roles`."""
    at = f"{path}." if path else ""
    if (node.roles is None) == (node.groups is None):
        received = "both" if node.roles is not None else "neither"
        yield Problem(path or "roles", "needs roles or groups", received, "one of the two")
    children = node.groups if node.groups is not None else node.roles or ()
    if node.need is not None and node.need > len(children):
        yield Problem(f"{at}need", "more than there are children", f"{node.need}", f"1 to {len(children)}")
    roles += [(f"{at}roles[{number}]", role) for number, role in enumerate(node.roles or ())]
    groups = node.groups or ()
    yield from _unique("group", [(f"{at}groups[{n}]", group.name) for n, group in enumerate(groups)])
    for number, group in enumerate(groups):
        yield from _tree_rules(f"{at}groups[{number}]", group, roles)


def _unique(what: str, named: list[tuple[str, str]]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for path, name in named:
        if first.setdefault(name, path) != path:
            duplicate = f"duplicate {what} name, also used by {first[name]}"
            yield Problem(f"{path}.name", duplicate, shown(name), f"one {what} of each name")


def _scaling_rules(roles: Placed) -> Iterator[Problem]:
    leads = {role.name: role.scale_with.role for _, role in roles if role.scale_with is not None}
    names = {role.name for _, role in roles}
    for path, role in roles:
        if role.scale_with is None:
            continue
        where = f"{path}.scale_with.role"
        others = ", ".join(sorted(names - {role.name})) or "there is no other role"
        if role.scale_with.role not in names:
            yield Problem(where, "no such role", shown(role.scale_with.role), others)
        elif _is_circular(role.name, leads):
            yield Problem(where, "is circular", shown(role.scale_with.role), "a chain that ends")


def _idle_rules(roles: Placed) -> Iterator[Problem]:
    for path, role in roles:
        if role.idle and role.command is not None:
            received, allowed = shown(role.command), "a command, or idle: true"
            yield Problem(f"{path}.command", "given together with idle", received, allowed)
    if roles and all(role.idle for _, role in roles):
        yield Problem("roles", "every role is idle", f"{len(roles)}", "at least one role with a command")


def _directory_rules(spec: WorkloadSpec) -> Iterator[Problem]:
    workspaces = [spec.workspace_of(role) for role in spec.all_roles]
    if spec.working_dir is not None and any(workspaces):
        received, allowed = shown(spec.working_dir), "workspace or working_dir"
        yield Problem("working_dir", "given together with workspace", received, allowed)


def _is_circular(start: str, leads: dict[str, str]) -> bool:
    seen, name = {start}, leads.get(start)
    while name is not None and name not in seen:
        seen.add(name)
        name = leads.get(name)
    return name is not None


def _size_rules(at: str, part: WorkloadSpec | RoleSpec) -> Iterator[Problem]:
    words = (part.command,) if isinstance(part.command, str) else part.command or ()
    if (size := sum(len(word.encode()) + 1 for word in words)) > COMMAND_MAX:
        yield Problem(f"{at}command", "too long", f"{size} bytes", f"at most {COMMAND_MAX} bytes")
    if (size := sum(len(f"{key}={value}".encode()) + 1 for key, value in part.env.items())) > ENV_MAX:
        yield Problem(f"{at}env", "too large", f"{size} bytes", f"at most {ENV_MAX} bytes")
