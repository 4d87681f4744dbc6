"""Check that every name in a scenario refers to exactly one object."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from berth.core.problems import Problem, closest_match, format_value, suggest
from berth.core.spec.roles import RoleSpec, Topology
from berth.core.spec.rules.document import rule_problems
from berth.core.spec.workload import GroupSpec, WorkloadSpec
from scheduler.simulator.scenario.schema import (
    PoolDocument,
    QueueDocument,
    ScenarioDocument,
    ScenarioWorkload,
)


def broken_references(document: ScenarioDocument) -> Iterator[Problem]:
    yield from _duplicate_name_problems("pools", [pool.name for pool in document.pools])
    yield from _duplicate_name_problems("nodes", [node.name for node in document.nodes])
    yield from _duplicate_name_problems(
        "departments", [department.name for department in document.departments]
    )
    yield from _duplicate_name_problems("projects", [project.name for project in document.projects])
    yield from _duplicate_name_problems("workloads", [workload.name for workload in document.workloads])
    for number, pool in enumerate(document.pools):
        yield from _pool_problems(f"pools[{number}]", pool)
    pools = dict.fromkeys(pool.name for pool in document.pools)
    for number, node in enumerate(document.nodes):
        if node.pool is None and len(pools) > 1:
            yield Problem(f"nodes[{number}].pool", "missing", "", ", ".join(pools))
        elif node.pool is not None:
            yield from _unknown_name_problems(f"nodes[{number}].pool", "pool", node.pool, pools)
    yield from _quota_group_problems(document, pools)
    groups = {group.name: group.pools for group in document.quota_groups}
    for kind, listed in (("departments", document.departments), ("projects", document.projects)):
        for number, queue in enumerate(listed):
            yield from _queue_problems(f"{kind}[{number}]", queue, pools, groups)
    departments = {department.name for department in document.departments}
    for number, project in enumerate(document.projects):
        yield from _unknown_name_problems(
            f"projects[{number}].department", "department", project.department, departments
        )
    yield from _workload_problems(document, pools)


def _pool_problems(path: str, pool: PoolDocument) -> Iterator[Problem]:
    minimum, maximum = pool.nodes.min, pool.nodes.max
    if maximum is not None and minimum > maximum:
        yield Problem(f"{path}.nodes.min", "above max", f"{minimum}", f"at most {maximum}")
    for place, level in enumerate(pool.topology):
        if level in pool.topology[:place]:
            yield Problem(f"{path}.topology[{place}]", "is listed twice", format_value(level))


def _quota_group_problems(document: ScenarioDocument, pools: Collection[str]) -> Iterator[Problem]:
    yield from _duplicate_name_problems("quota_groups", [group.name for group in document.quota_groups])
    group_of: dict[str, str] = {}
    for number, group in enumerate(document.quota_groups):
        path = f"quota_groups[{number}]"
        if group.name in pools:
            yield Problem(f"{path}.name", "is taken by a pool", format_value(group.name), "a unique name")
        for place, pool in enumerate(group.pools):
            yield from _unknown_name_problems(f"{path}.pools[{place}]", "pool", pool, pools)
            if pool in group_of:
                message = f"already belongs to quota group {group_of[pool]}"
                yield Problem(f"{path}.pools[{place}]", message, format_value(pool), "each pool once")
            group_of.setdefault(pool, group.name)


def _queue_problems(
    path: str, queue: QueueDocument, pools: Collection[str], groups: Mapping[str, Sequence[str]]
) -> Iterator[Problem]:
    for name in queue.quotas:
        yield from _unknown_name_problems(f"{path}.quotas.{name}", "pool", name, [*pools, *groups])
        for pool in groups.get(name, ()):
            if pool in queue.quotas:
                message = f"conflicts with the quota of group {name}, which includes pool {pool}"
                yield Problem(f"{path}.quotas.{pool}", message, "", f"either {pool} or {name}")
    for pool in queue.usage:
        yield from _unknown_name_problems(f"{path}.usage.{pool}", "pool", pool, pools)


def _workload_problems(document: ScenarioDocument, pools: Collection[str]) -> Iterator[Problem]:
    projects = {project.name for project in document.projects}
    names = {workload.name for workload in document.workloads}
    levels = {label for node in document.nodes for label in node.labels}
    levels |= {level for pool in document.pools for level in pool.topology}
    for number, workload in enumerate(document.workloads):
        at = f"workloads[{number}]"
        for problem in rule_problems(workload):
            path = f"{at}.{problem.path}" if problem.path else at
            yield Problem(path, problem.message, problem.received, problem.allowed)
        if workload.array is not None:
            yield Problem(f"{at}.array", "is not supported in scenarios", "", "one workload for each task")
        yield from _unknown_name_problems(f"{at}.project", "project", workload.project, projects)
        if workload.burst_after is not None:
            yield Problem(f"{at}.burst_after", "is not simulated", f"{workload.burst_after}", "pools alone")
        for place, pool in enumerate(workload.pools):
            yield from _unknown_name_problems(f"{at}.pools[{place}]", "pool", pool, pools)
            if pool in workload.pools[:place]:
                yield Problem(f"{at}.pools[{place}]", "is listed twice", format_value(pool))
        for place, dependency in enumerate(workload.after):
            path = f"{at}.after[{place}]"
            yield from _unknown_name_problems(f"{path}.workload", "workload", dependency.workload, names)
            if dependency.state == "failed":
                yield Problem(f"{path}.state", "is not simulated", "'failed'", "completed or any")
        yield from _topology_level_problems(at, workload, levels)
    yield from _dependency_cycles(document.workloads)


def _topology_level_problems(
    path: str, part: WorkloadSpec | GroupSpec | RoleSpec, levels: Collection[str]
) -> Iterator[Problem]:
    topology: Topology | None = part.topology
    for key in ("required", "preferred"):
        level = getattr(topology, key, None)
        if level is not None:
            yield from _unknown_name_problems(f"{path}.topology.{key}", "topology level", level, levels)
    if isinstance(part, RoleSpec):
        return
    for number, role in enumerate(part.roles or ()):
        yield from _topology_level_problems(f"{path}.roles[{number}]", role, levels)
    for number, group in enumerate(part.groups or ()):
        yield from _topology_level_problems(f"{path}.groups[{number}]", group, levels)


def _dependency_cycles(workloads: Sequence[ScenarioWorkload]) -> Iterator[Problem]:
    awaited = {workload.name: {entry.workload for entry in workload.after} for workload in workloads}
    unresolved = dict(awaited)
    while resolved := {name for name, others in unresolved.items() if not others & unresolved.keys()}:
        unresolved = {name: others for name, others in unresolved.items() if name not in resolved}
    for number, workload in enumerate(workloads):
        if workload.name in unresolved and workload.name not in awaited[workload.name]:
            yield Problem(
                f"workloads[{number}].after",
                "is blocked by a dependency cycle",
                format_value(workload.name),
            )


def _duplicate_name_problems(kind: str, names: Sequence[str]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        if first.setdefault(name, number) != number:
            message = f"is taken by {kind}[{first[name]}].name"
            yield Problem(f"{kind}[{number}].name", message, format_value(name), "a unique name")


def _unknown_name_problems(path: str, kind: str, name: str, names: Collection[str]) -> Iterator[Problem]:
    if name not in names:
        near = closest_match(name, names) if len(names) < 1000 else ""
        yield Problem(path, f"no such {kind}", format_value(name), suggest(name, [near]) if near else "")
