"""Check a submission's project, pools, deadline and commands."""

from datetime import datetime

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec import WorkloadSpec
from projects.models import Project
from projects.services.workloads.submission_view import SubmissionView

NAMES_SHOWN = 20


def resolve_project(view: SubmissionView, spec: WorkloadSpec, project: Project | None, where: str) -> Project:
    """Return the project of a submission.

    `where` is the document key for its name. A document without a project uses the only project to which the
    user may submit. Raises Invalid if there is not exactly one, and NotFound if `project` has been deleted.
    """
    if project is not None:
        if spec.project is not None and spec.project != project.name:
            raise Invalid([Problem(where, "names another project", format_value(spec.project), project.name)])
        return view.refresh_project(project)
    if spec.project is None:
        return view.refresh_project(_only_project(view, where))
    project = view.visible_project(spec.project)
    if project is None:
        allowed = "the name of a project that you may submit to"
        raise Invalid([Problem(where, "does not exist", format_value(spec.project), allowed)])
    return project


def _only_project(view: SubmissionView, where: str) -> Project:
    projects = view.submittable_projects
    if len(projects) == 1:
        return projects[0]
    names = ", ".join(project.name for project in projects[:NAMES_SHOWN])
    allowed = f"one of {names}" if names else "a project; ask a department admin to make you a member"
    raise Invalid([Problem(where, "is required", "", allowed)])


def resolve_pools(view: SubmissionView, spec: WorkloadSpec, at: datetime) -> list[str]:
    """Return the pools listed in a document, or all pools that have not expired if it lists none.

    Raises Invalid if a listed pool does not exist, or if there are no pools.
    """
    names = list(view.pools)
    allowed = ", ".join(names[:NAMES_SHOWN]) or "no pool exists yet"
    unknown = [
        Problem(f"pools[{i}]", "does not exist", format_value(name), allowed)
        for i, name in enumerate(spec.pools)
        if name not in view.pools
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
    active = [name for name, pool in view.pools.items() if pool.expires_at is None or pool.expires_at > at]
    return list(dict.fromkeys(spec.pools)) or active or names


def check_deadline(spec: WorkloadSpec, at: datetime) -> None:
    """Raise Invalid if the deadline has passed."""
    if spec.deadline is not None and spec.deadline <= at:
        received, allowed = (
            format_value(spec.deadline.isoformat()),
            f"later than {at.isoformat(timespec='seconds')}",
        )
        raise Invalid([Problem("deadline", "has passed", received, allowed)])


def check_array_use(spec: WorkloadSpec, *, is_array: bool) -> None:
    """Raise Invalid for an array where a single workload is expected, or vice versa."""
    if spec.array is not None and not is_array:
        allowed = "a document for one workload; submit an array with POST /api/v1/arrays or `berth submit`"
        raise Invalid([Problem("array", "creates several workloads", "", allowed)])
    if spec.array is None and is_array:
        raise Invalid([Problem("array", "is missing", "", "tasks, values or matrix")])


def check_commands(spec: WorkloadSpec) -> None:
    """Raise Invalid if a role needs a command, but neither the role nor its image has one."""
    if spec.image is not None:
        return
    allowed = "a shell command, a list of arguments, or an image that has a command"
    problems = [
        Problem("command", f"is required for role {role.name}", "", allowed)
        for role in spec.all_roles
        if not spec.role_argv(role)
    ]
    if problems:
        raise Invalid(problems)
