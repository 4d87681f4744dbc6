"""Parse a workload document, or report everything that is wrong with it."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from berth.core.problems import Problem, shown
from berth.core.spec.findings import problems_of
from berth.core.spec.manifest import in_manifest, is_manifest, translated
from berth.core.spec.refusal import SpecError
from berth.core.spec.roles import RoleSpec
from berth.core.spec.rules import broken_rules, role_rules
from berth.core.spec.workload import WorkloadSpec

DEPTH_MAX = 24  # enough for eight nested groups and the contents of a role


def parse_workload(data: object, *, free_names: bool = False) -> WorkloadSpec:
    """Return the validated spec of a workload document or a `kind: TrainingJob` manifest.

    `free_names` allows any printable names, for scenario files. Raises SpecError with all problems.
    """
    if not isinstance(data, Mapping):
        raise SpecError([Problem("", "is not a workload document", shown(data), "keys and values")])
    if too_deep(data):
        raise SpecError([Problem("", "too deep", "", f"at most {DEPTH_MAX} nested levels")])
    if is_manifest(data):
        document = translated(data)
        try:
            return _parsed(document, free_names)
        except SpecError as error:
            raise SpecError(_sorted(in_manifest(error.problems, data))) from None
    return _parsed(data, free_names)


def _parsed(document: Mapping[Any, Any], free_names: bool) -> WorkloadSpec:
    try:
        spec = WorkloadSpec.model_validate(document, context={"free_names": free_names})
    except ValidationError as error:
        problems = problems_of(error, WorkloadSpec)
        raise SpecError(_sorted([*problems, *_lone_role_problems("", document)])) from None
    if problems := list(broken_rules(spec)):
        raise SpecError(_sorted(problems))
    return spec


def too_deep(data: object, most: int = DEPTH_MAX) -> bool:
    """Return whether a document is nested too deeply. Recursion might overflow the stack, so this loops."""
    level = [data]
    for _ in range(most):
        below: list[object] = []
        for value in level:
            if isinstance(value, Mapping):
                below.extend(value.values())
            elif isinstance(value, list | tuple):
                below.extend(value)
        if not below:
            return False
        level = below
    return True


def _lone_role_problems(path: str, node: object) -> Iterator[Problem]:
    """Yield the problems of roles that can be parsed even though the whole document cannot."""
    if not isinstance(node, Mapping):
        return
    at = f"{path}." if path else ""
    for key in ("roles", "groups"):
        children = node.get(key)
        for number, child in enumerate(children if isinstance(children, list | tuple) else ()):
            where = f"{at}{key}[{number}]"
            if key == "groups":
                yield from _lone_role_problems(where, child)
                continue
            try:
                yield from role_rules(where, RoleSpec.model_validate(child, context={"free_names": True}))
            except ValidationError:
                continue


def _sorted(problems: list[Problem]) -> list[Problem]:
    """Return each problem once, in a stable order."""
    return sorted(set(problems), key=lambda problem: (problem.path, problem.message, problem.received))
