"""Parse a workload document, or report all of its problems."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from berth.core.problems import Problem, format_value
from berth.core.spec.parsing.findings import convert_errors
from berth.core.spec.parsing.manifest import is_manifest, to_workload_document, with_manifest_paths
from berth.core.spec.parsing.rejection import SpecError
from berth.core.spec.parsing.valid_part import STAND_INS
from berth.core.spec.roles import RoleSpec
from berth.core.spec.rules.document import role_problems, rule_problems
from berth.core.spec.workload import WorkloadSpec

SCALARS = frozenset({str, int, float, bool, type(None)})
# Invalid values without which rules that involve other fields can still be checked.
LEFT_OUT = frozenset(
    {"project", "labels", "env", "notifications", "priority", "max_runtime", "idle_timeout",
     "grace_period_seconds"}
)  # fmt: skip
DEPTH_MAX = 24  # enough for eight nested groups and the contents of a role


def parse_workload(data: object) -> WorkloadSpec:
    """Parse a workload document or a `kind: TrainingJob` manifest. Raises SpecError with all problems."""
    if not isinstance(data, Mapping):
        raise SpecError([Problem("", "is not a workload document", format_value(data), "a mapping")])
    if is_too_deep(data):
        raise SpecError([Problem("", "is nested too deeply", "", f"at most {DEPTH_MAX} nested levels")])
    if is_manifest(data):
        document = to_workload_document(data)
        try:
            return _parse(document)
        except SpecError as error:
            raise SpecError(_sort_problems(with_manifest_paths(error.problems, data))) from None
    return _parse(data)


def _parse(document: Mapping[Any, Any]) -> WorkloadSpec:
    try:
        spec = WorkloadSpec.model_validate(document)
    except ValidationError as error:
        problems = convert_errors(error, WorkloadSpec)
        more = (*_problems_in_each_role("", document), *_other_rule_problems(document, error))
        raise SpecError(_sort_problems([*problems, *more])) from None
    if problems := list(rule_problems(spec)):
        raise SpecError(_sort_problems(problems))
    return spec


def is_too_deep(data: object, most: int = DEPTH_MAX) -> bool:
    """Return whether a document is nested too deeply.

    Recursion is avoided, because it could overflow the stack.
    """
    level = [data]
    for _ in range(most):
        next_level: list[object] = []
        for value in level:
            if type(value) in SCALARS:  # this check is much faster than those below
                continue
            if isinstance(value, Mapping):
                next_level.extend(value.values())
            elif isinstance(value, list | tuple):
                next_level.extend(value)
        if not next_level:
            return False
        level = next_level
    return True


def _problems_in_each_role(path: str, node: object) -> Iterator[Problem]:
    """Yield the problems in each role of a document that cannot be parsed as a whole."""
    if not isinstance(node, Mapping):
        return
    prefix = f"{path}." if path else ""
    for key in ("roles", "groups"):
        children = node.get(key)
        for number, child in enumerate(children if isinstance(children, list | tuple) else ()):
            where = f"{prefix}{key}[{number}]"
            if key == "groups":
                yield from _problems_in_each_role(where, child)
                continue
            yield from _role_problems(where, child)


def _role_problems(path: str, child: object) -> Iterator[Problem]:
    """Yield contradictions between fields that are valid on their own."""
    context = {"free_names": True}
    try:
        role = RoleSpec.model_validate(child, context=context)
    except ValidationError as error:
        invalid_keys = {details["loc"][0] for details in error.errors(include_url=False) if details["loc"]}
        if not isinstance(child, Mapping) or not invalid_keys:
            return
        valid = {key: value for key, value in child.items() if key not in invalid_keys}
        try:
            role = RoleSpec.model_validate(valid, context=context)
        except ValidationError:
            return
        paths = {f"{path}.{key}" for key in invalid_keys}
        yield from (problem for problem in role_problems(path, role) if problem.path not in paths)
        return
    yield from role_problems(path, role)


def _other_rule_problems(document: Mapping[Any, Any], error: ValidationError) -> Iterator[Problem]:
    """Yield contradictions between the valid fields of a document that has invalid fields."""
    invalid_keys = {details["loc"][0] for details in error.errors(include_url=False) if details["loc"]}
    if not invalid_keys or not invalid_keys <= STAND_INS.keys() | LEFT_OUT:
        return
    valid = {key: value for key, value in document.items() if key not in invalid_keys}
    stand_ins = {key: value for key, value in STAND_INS.items() if key in invalid_keys}
    try:
        spec = WorkloadSpec.model_validate({**valid, **stand_ins})
    except ValidationError:
        return
    yield from (problem for problem in rule_problems(spec) if problem.path not in invalid_keys)


def _sort_problems(problems: list[Problem]) -> list[Problem]:
    return sorted(set(problems), key=lambda problem: (problem.path, problem.message, problem.received))
