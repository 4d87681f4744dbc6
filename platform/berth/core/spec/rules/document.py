"""Validation rules that involve several fields of a document."""

from collections.abc import Iterator, Mapping

from berth.core.problems import Problem, format_value
from berth.core.spec.roles import RoleSpec, SecretUse
from berth.core.spec.rules.arrays import array_problems
from berth.core.spec.rules.services import service_problems
from berth.core.spec.sections.after import after_problems
from berth.core.spec.sections.outputs import output_problems
from berth.core.spec.sections.ports import port_problems
from berth.core.spec.sections.retry import retry_problems
from berth.core.spec.tree import build_tree, smallest_gang_size
from berth.core.spec.values.addresses import ALLOWED, detect_channel
from berth.core.spec.values.quantities import cpu_limit_problem, memory_limit_problem
from berth.core.spec.values.texts import COMMAND_MAX, ENV_MAX, is_set_by_berth
from berth.core.spec.workload import CHILDREN_MAX, GRACE_MAX, GroupSpec, WorkloadSpec
from berth.core.values.images import pull_policy_problems

PlacedSecrets = list[tuple[str, SecretUse]]  # (document path, secret) pairs
RolesWithPaths = list[tuple[str, RoleSpec]]  # (document path, role) pairs


def rule_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    """Yield contradictions between document fields, in document key order."""
    roles: RolesWithPaths = []
    tree_problems = list(_tree_problems("", spec, roles))
    yield from tree_problems
    yield from _size_problems("", spec)
    if len(roles) > CHILDREN_MAX:
        yield Problem(
            "roles", "has too many entries", f"{len(roles)}", f"at most {CHILDREN_MAX} in the whole tree"
        )
    for path, role in roles:
        yield from role_problems(path, role)
    yield from _duplicate_name_problems("role", [(path, role.name) for path, role in roles])
    yield from _scaling_problems(roles)
    yield from _idle_role_problems(roles)
    yield from _directory_problems(spec)
    yield from _secret_problems(spec, roles)
    if not tree_problems and smallest_gang_size(build_tree(spec)) == 0:
        yield Problem("roles", "requires no replicas", "min 0", "a required role with a min of at least 1")
    for number, notification in enumerate(spec.notifications):
        if detect_channel(notification.to) is None:
            path = f"notifications[{number}].to"
            yield Problem(path, "is not a valid address", format_value(notification.to), ALLOWED)
    yield from service_problems(spec)
    yield from port_problems(spec.ports, spec.kind)
    yield from array_problems(spec)
    yield from output_problems(spec.outputs, spec.kind)
    yield from retry_problems(spec.retry, [role for _, role in roles])
    if spec.retry and spec.restart_policy.kind != "never":
        yield Problem(
            "restart_policy", "cannot be combined with retry", spec.restart_policy.kind,
            "a last rule `on: [pod_failed]` in retry instead",
        )  # fmt: skip
    if spec.preemption is not None and spec.stop_seconds > GRACE_MAX:
        received = f"{spec.preemption.lead} s with grace_period_seconds {spec.grace_period_seconds}"
        yield Problem("preemption.lead", "is too long", received, f"{GRACE_MAX} s in total")
    yield from pull_policy_problems(spec.image, spec.image_pull_policy)
    if spec.burst_after is not None and len(spec.pools) < 2:
        yield Problem(
            "burst_after", "needs a pool to wait for and a pool to burst to", f"{len(spec.pools)} in pools",
            "two or more pools; only the last one waits for this time",
        )  # fmt: skip
    yield from after_problems(
        spec.after, name=spec.name, project=spec.project, is_array=spec.array is not None
    )


def role_problems(path: str, role: RoleSpec) -> Iterator[Problem]:
    """Yield the problems in a single role."""
    prefix = f"{path}." if path else ""
    yield from _count_problems(prefix, role)
    yield from _gpu_problems(prefix, role)
    for problem in (
        cpu_limit_problem(f"{prefix}limit.cpu", role.limit.cpu),
        memory_limit_problem(f"{prefix}limit.memory_mib", role.limit.memory_mib),
    ):
        if problem is not None:
            yield problem
    if role.limit.cpu is not None and role.limit.cpu < role.cpu:
        yield Problem(
            f"{prefix}limit.cpu", "is below the request", f"{role.limit.cpu}", f"{role.cpu} or more"
        )
    if role.limit.memory_mib is not None and role.limit.memory_mib < role.memory_mib:
        received, least = role.limit.memory_mib, role.memory_mib
        yield Problem(f"{prefix}limit.memory_mib", "is below the request", f"{received}", f"{least} or more")
    for number, toleration in enumerate(role.tolerations):
        if not toleration.key and toleration.operator == "Equal":
            where = f"{prefix}tolerations[{number}].key"
            yield Problem(where, "is missing", "", "a key, or operator Exists without a key")
    yield from _size_problems(prefix, role)


def _count_problems(prefix: str, role: RoleSpec) -> Iterator[Problem]:
    if role.replicas is not None and (role.min is not None or role.max is not None):
        yield Problem(
            f"{prefix}replicas", "cannot be combined with min or max", f"{role.replicas}", "one of the two"
        )
    elif role.max is not None and role.min is None:
        yield Problem(f"{prefix}min", "is required if max is set", "", f"0 to {role.max}")
    elif role.minimum > role.maximum:
        yield Problem(f"{prefix}min", "is above max", f"{role.min}", f"at most {role.max}")
    elif role.maximum == 0:
        yield Problem(f"{prefix}max", "allows no replicas", "0", "a max of at least 1")


def _gpu_problems(prefix: str, role: RoleSpec) -> Iterator[Problem]:
    if role.gpu_memory_mib is not None and role.gpu:
        received = f"{role.gpu_memory_mib} with gpu {role.gpu}"
        yield Problem(f"{prefix}gpu_memory_mib", "cannot be combined with gpu", received, "one of the two")
    elif role.gpu_devices is not None and role.gpu >= 1:
        yield Problem(
            f"{prefix}gpu_devices",
            "cannot be combined with whole devices",
            f"{role.gpu_devices} with gpu {role.gpu}",
            "gpu_devices with a fraction of a device (gpu below 1) or gpu_memory_mib",
        )
    elif role.gpu_devices is not None and not role.gpu and role.gpu_memory_mib is None:
        received, allowed = f"{role.gpu_devices}", "gpu or gpu_memory_mib as well"
        yield Problem(f"{prefix}gpu_devices", "requires gpu", received, allowed)


def _tree_problems(path: str, node: WorkloadSpec | GroupSpec, roles: RolesWithPaths) -> Iterator[Problem]:
    """Yield the problems in the tree, and append each role with its path to `roles`."""
    prefix = f"{path}." if path else ""
    if (node.roles is None) == (node.groups is None):
        if node.roles is not None:
            yield Problem(f"{prefix}groups", "cannot be combined with roles", "", "one of the two")
        elif path:
            yield Problem(path, "is empty", "", "roles or groups")
        else:
            yield Problem("roles", "is missing", "", "roles or groups")
    children = node.groups if node.groups is not None else node.roles or ()
    if node.need is not None and node.need > len(children):
        yield Problem(
            f"{prefix}need", "exceeds the number of children", f"{node.need}", f"1 to {len(children)}"
        )
    roles += [(f"{prefix}roles[{number}]", role) for number, role in enumerate(node.roles or ())]
    groups = node.groups or ()
    yield from _duplicate_name_problems(
        "group", [(f"{prefix}groups[{n}]", group.name) for n, group in enumerate(groups)]
    )
    for number, group in enumerate(groups):
        yield from _tree_problems(f"{prefix}groups[{number}]", group, roles)


def _duplicate_name_problems(what: str, names_by_path: list[tuple[str, str]]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for path, name in names_by_path:
        if first.setdefault(name, path) != path:
            duplicate = f"is also the name of {first[name]}"
            yield Problem(f"{path}.name", duplicate, format_value(name), f"unique {what} names")


def _scaling_problems(roles: RolesWithPaths) -> Iterator[Problem]:
    followed_roles = {role.name: role.scale_with.role for _, role in roles if role.scale_with is not None}
    names = {role.name for _, role in roles}
    for path, role in roles:
        if role.scale_with is None:
            continue
        where = f"{path}.scale_with.role"
        others = ", ".join(sorted(names - {role.name})) or "nothing, because the document has no other role"
        if role.scale_with.role not in names:
            yield Problem(where, "is not a role of the document", format_value(role.scale_with.role), others)
        elif _is_circular(role.name, followed_roles):
            yield Problem(
                where, "is circular", format_value(role.scale_with.role), "a chain of roles without a cycle"
            )


def _idle_role_problems(roles: RolesWithPaths) -> Iterator[Problem]:
    for path, role in roles:
        if role.idle and role.command is not None:
            received, allowed = format_value(role.command), "a command, or idle: true"
            yield Problem(f"{path}.command", "cannot be combined with idle", received, allowed)
    if roles and all(role.idle for _, role in roles):
        yield Problem("roles", "has only idle roles", f"{len(roles)}", "at least one role with a command")


def _directory_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    workspaces = [spec.role_workspace(role) for role in spec.all_roles]
    if spec.working_dir is not None and any(workspaces):
        received, allowed = format_value(spec.working_dir), "workspace or working_dir"
        yield Problem("working_dir", "cannot be combined with workspace", received, allowed)
    if spec.code is not None and any(workspaces):
        received, allowed = format_value(spec.code.label), "code or workspace; pods with code start in it"
        yield Problem("code", "cannot be combined with workspace", received, allowed)


def _secret_problems(spec: WorkloadSpec, roles: RolesWithPaths) -> Iterator[Problem]:
    shared_uses = [(f"secrets[{number}]", use) for number, use in enumerate(spec.secrets)]
    yield from _secret_use_problems(shared_uses, spec.env, [])
    for path, role in roles:
        uses = [(f"{path}.secrets[{number}]", use) for number, use in enumerate(role.secrets)]
        yield from _secret_use_problems(uses, spec.role_env(role), shared_uses)
        overrides = [(where, use) for where, use in shared_uses if use.env in role.env]
        for where, use in overrides:
            message = f"is also a variable in env of role {role.name}"
            yield Problem(f"{where}.env", message, format_value(use.env), "a variable that env does not set")


def _secret_use_problems(
    uses: PlacedSecrets, env: Mapping[str, str], outer: PlacedSecrets
) -> Iterator[Problem]:
    """Yield the problems with the secrets. `outer` lists the other secrets that the same pods receive."""
    targets: set[tuple[str, str | None]] = {("env", use.env) for _, use in outer}
    targets |= {("file", use.file) for _, use in outer}
    for path, use in uses:
        if (use.env is None) == (use.file is None):
            received = "neither" if use.env is None else "both"
            yield Problem(path, "needs env or file", received, "one of the two")
            continue
        key, target = ("env", use.env) if use.env is not None else ("file", use.file)
        where, received = f"{path}.{key}", format_value(target)
        if key == "env" and is_set_by_berth(str(target)):
            yield Problem(where, "is set by Berth", received, "another variable name")
        elif key == "env" and target in env:
            yield Problem(where, "is also a variable in env", received, "a variable that env does not set")
        elif (key, target) in targets:
            yield Problem(where, "is used for two secrets", received, "one secret for each variable and file")
        targets.add((key, target))


def _is_circular(start: str, followed_roles: dict[str, str]) -> bool:
    seen, name = {start}, followed_roles.get(start)
    while name is not None and name not in seen:
        seen.add(name)
        name = followed_roles.get(name)
    return name is not None


def _size_problems(prefix: str, part: WorkloadSpec | RoleSpec) -> Iterator[Problem]:
    words = (part.command,) if isinstance(part.command, str) else part.command or ()
    if (size := sum(len(word.encode()) + 1 for word in words)) > COMMAND_MAX:
        yield Problem(f"{prefix}command", "is too long", f"{size} bytes", f"at most {COMMAND_MAX} bytes")
    if (size := sum(len(f"{key}={value}".encode()) + 1 for key, value in part.env.items())) > ENV_MAX:
        yield Problem(f"{prefix}env", "is too large", f"{size} bytes", f"at most {ENV_MAX} bytes")
