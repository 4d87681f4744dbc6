"""Check a submission's project, pools, deadline, commands and dependencies."""

from datetime import datetime

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec import WorkloadSpec
from pools.models import NodePool
from projects.access import Action, may
from projects.actor import Actor
from projects.models import Project, Workload
from projects.selectors import projects as visible

NAMES_SHOWN = 20


def resolve_project(actor: Actor, spec: WorkloadSpec, project: Project | None, where: str) -> Project:
    """Return the project of a submission. `where` is the document key that contains its name.

    If the document names no project, the only project in which the user may submit is used. Raises Invalid if
    there is no such project or more than one.
    """
    if project is not None:
        if spec.project is not None and spec.project != project.name:
            raise Invalid([Problem(where, "names another project", format_value(spec.project), project.name)])
        return project
    if spec.project is None:
        return _only_project(actor, where)
    project = visible(actor).filter(name=spec.project).first()
    if project is None:
        allowed = "the name of a project in which you may submit"
        raise Invalid([Problem(where, "does not exist", format_value(spec.project), allowed)])
    return project


def _only_project(actor: Actor, where: str) -> Project:
    projects = [project for project in visible(actor) if may(actor, Action.SUBMIT, project)]
    if len(projects) == 1:
        return projects[0]
    names = ", ".join(project.name for project in projects[:NAMES_SHOWN])
    allowed = f"one of {names}" if names else "a project; ask a department admin to make you a member"
    raise Invalid([Problem(where, "is required", "", allowed)])


def resolve_pools(spec: WorkloadSpec, at: datetime) -> list[str]:
    """Return the pools listed in a document, or all pools that have not expired if it lists none.

    Raises Invalid if a listed pool does not exist or there is no pool at all.
    """
    expiries = dict(NodePool.objects.order_by("name").values_list("name", "expires_at"))
    names = list(expiries)
    allowed = ", ".join(names[:NAMES_SHOWN]) or "no pool exists yet"
    unknown = [
        Problem(f"pools[{i}]", "does not exist", format_value(name), allowed)
        for i, name in enumerate(spec.pools)
        if name not in expiries
    ]
    if unknown:
        raise Invalid(unknown)
    if not names:
        raise Invalid(
            [
                Problem(
                    "pools",
                    "cannot be chosen: there is no node pool yet",
                    "",
                    "ask a platform admin to create one",
                )
            ]
        )
    active = [name for name, end in expiries.items() if end is None or end > at]
    return list(dict.fromkeys(spec.pools)) or active or names


def check_deadline(spec: WorkloadSpec, at: datetime) -> None:
    """Raise Invalid for a past deadline. Such a workload would evict others and then end immediately."""
    if spec.deadline is not None and spec.deadline <= at:
        received, allowed = (
            format_value(spec.deadline.isoformat()),
            f"later than {at.isoformat(timespec='seconds')}",
        )
        raise Invalid([Problem("deadline", "has passed", received, allowed)])


def check_runnable(spec: WorkloadSpec) -> None:
    """Raise Invalid for roles that have no command and are not idle."""
    allowed = "a shell command, or a list of arguments"
    problems = [
        Problem("command", f"is required for role {role.name}", "", allowed)
        for role in spec.all_roles
        if not spec.role_argv(role)
    ]
    if problems:
        raise Invalid(problems)


def missing_dependencies(workload: Workload, spec: WorkloadSpec) -> list[str]:
    """Return one warning for each dependency that does not exist."""
    existing = Workload.objects.filter(project=workload.project, name__in=spec.depends_on)
    missing = sorted(set(spec.depends_on) - set(existing.values_list("name", flat=True)))
    return [f"The dependency {workload.project.name}/{name} does not exist yet." for name in missing]
