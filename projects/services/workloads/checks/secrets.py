"""Check that a workload document's secrets exist in its project or pools."""

from collections.abc import Iterator, Mapping, Sequence

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest
from berth.core.spec import GroupSpec, WorkloadSpec
from berth.core.spec.roles import SecretUse
from projects.models import Project
from projects.services.workloads.submission_view import SubmissionView

NONE_YET = "nothing, because neither the project nor these pools have secrets; see `berth secret set --help`"
NO_PERSONAL = "nothing, because you have no personal secrets; see `berth secret set --help`"


def pools_with_secrets(
    view: SubmissionView, spec: WorkloadSpec, project: Project, pools: Sequence[str]
) -> list[str]:
    """Return the pools in which the project can use all of the document's secrets.

    Raises Invalid if there is no such pool, if the document lists a pool that lacks a secret, or if the user
    lacks a personal secret.
    """
    uses = list(_secret_paths("", spec))
    if any(use.personal for use, _ in uses):
        _check_personal_secrets(view, [(use.name, path) for use, path in uses if use.personal])
    paths = {use.name: path for use, path in uses if not use.personal}
    if not paths:
        return list(pools)
    available = view.secret_names(project, pools)
    missing = {pool: sorted(set(paths) - names) for pool, names in available.items()}
    capable = [pool for pool in pools if not missing[pool]]
    listed = [
        Problem(f"pools[{number}]", f"has no secret {name}, nor does project {project.name}",
                format_value(pool), ", ".join(capable) or _suggest_secret(name, available))
        for number, pool in enumerate(spec.pools) if pool in missing and capable for name in missing[pool]
    ]  # fmt: skip
    if listed:
        raise Invalid(listed)
    if not capable:
        raise Invalid(list(_missing_secret_problems(view, paths, project, available)))
    return capable


def _check_personal_secrets(view: SubmissionView, uses: Sequence[tuple[str, str]]) -> None:
    owned = view.personal_secret_names
    problems = [
        Problem(path, "is not one of your personal secrets", format_value(name),
                suggest(name, sorted(owned)) or NO_PERSONAL)
        for name, path in uses if name not in owned
    ]  # fmt: skip
    if problems:
        raise Invalid(problems)


def _secret_paths(path: str, node: WorkloadSpec | GroupSpec) -> Iterator[tuple[SecretUse, str]]:
    """Yield each secret that the document uses, with the path of the secret's name."""
    prefix = f"{path}." if path else ""
    if isinstance(node, WorkloadSpec):
        yield from ((use, f"secrets[{number}].name") for number, use in enumerate(node.secrets))
    for index, role in enumerate(node.roles or ()):
        for number, use in enumerate(role.secrets):
            yield use, f"{prefix}roles[{index}].secrets[{number}].name"
    for index, group in enumerate(node.groups or ()):
        yield from _secret_paths(f"{prefix}groups[{index}]", group)


def _missing_secret_problems(
    view: SubmissionView, paths: Mapping[str, str], project: Project, available: Mapping[str, set[str]]
) -> Iterator[Problem]:
    logins = view.registry_secret_names(project, available)
    everywhere = set().union(*available.values())
    for name, path in paths.items():
        if name in everywhere:
            continue
        message = f"is not a secret of project {project.name} or of its pools"
        if name in logins:
            message = "contains credentials for a registry, which pods do not get"
        yield Problem(path, message, format_value(name), _suggest_secret(name, available))
    if everywhere >= set(paths):
        yield Problem("secrets", "are not all in the same pool", ", ".join(sorted(paths)),
                      f"secrets of project {project.name}, or of one pool")  # fmt: skip


def _suggest_secret(name: str, available: Mapping[str, set[str]]) -> str:
    return suggest(name, sorted(set().union(*available.values()))) or NONE_YET
