"""Here we take a workload document in, whole or with everything that is wrong with it."""
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from berth.core.problems import Problem, nearest, path_of, shown
from berth.core.spec.manifest import is_manifest, translated
from berth.core.spec.refusal import SpecError
from berth.core.spec.roles import ONE_LINE, WORD_LIST, Limit, RoleSpec, ScaleWith, Toleration, Topology
from berth.core.spec.rules import broken_rules, role_rules
from berth.core.spec.workload import GroupSpec, Notification, RestartPolicy, WorkloadSpec

DEPTH_MAX = 24  # of the document: eight groups inside each other and what a role holds
PARTS: Mapping[str, type[BaseModel]] = {
    "roles": RoleSpec, "groups": GroupSpec, "topology": Topology, "limit": Limit, "tolerations": Toleration,
    "scale_with": ScaleWith, "restart_policy": RestartPolicy, "notifications": Notification,
}  # fmt: skip
EXPECTED = {
    "string_type": "text", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "bool_type": "true or false", "dict_type": "keys and values",
    "model_type": "keys and values", "tuple_type": "a list", "list_type": "a list",
    "finite_number": "a finite number",
}  # fmt: skip
MESSAGES = {
    "literal_error": "is not one of the choices", "too_long": "too many", "too_short": "too few",
    "string_too_long": "too long", "string_too_short": "too short", "greater_than_equal": "too small",
    "greater_than": "too small", "less_than_equal": "too large", "less_than": "too large",
    "int_parsing_size": "too large",
} | {kind: f"is not {what}" for kind, what in EXPECTED.items()}  # fmt: skip
LEAST = {"greater_than_equal": "ge", "greater_than": "gt"}
MOST = {"less_than_equal": "le", "less_than": "lt"}


def parse_workload(data: object, *, free_names: bool = False) -> WorkloadSpec:
    """The document as a checked spec; a `kind: TrainingJob` manifest is taken as well.

    Raises SpecError with all problems. `free_names` is for scenario files, which name things as they like.
    """
    if not isinstance(data, Mapping):
        raise SpecError([Problem("", "is not a workload document", shown(data), "keys and values")])
    if too_deep(data):
        raise SpecError([Problem("", "too deep", "", f"at most {DEPTH_MAX} levels inside each other")])
    document = translated(data) if is_manifest(data) else data
    try:
        spec = WorkloadSpec.model_validate(document, context={"free_names": free_names})
    except ValidationError as error:
        found = problems_of(error, WorkloadSpec)
        raise SpecError(_sorted([*found, *_lone_role_problems("", document)])) from None
    if problems := list(broken_rules(spec)):
        raise SpecError(_sorted(problems))
    return spec


def too_deep(data: object, most: int = DEPTH_MAX) -> bool:
    """Counted without recursion, so that no document can exhaust the stack."""
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


def problems_of(
    error: ValidationError, top: type[BaseModel], parts: Mapping[str, type[BaseModel]] = PARTS
) -> list[Problem]:
    """The findings of the model layer in our words."""
    found = error.errors(include_url=False)
    inside = {details["loc"][:depth] for details in found for depth in range(len(details["loc"]))}
    # A list that has lost its broken members is not too short as well.
    return [
        _problem_of(details, top, parts)
        for details in found
        if details["type"] != "too_short" or details["loc"] not in inside
    ]


def _problem_of(details: ErrorDetails, top: type[BaseModel], parts: Mapping[str, type[BaseModel]]) -> Problem:
    location = tuple(step for step in details["loc"] if not _is_branch(step))
    path, kind = path_of(location), details["type"]
    context = details.get("ctx") or {}
    if kind == "extra_forbidden":
        return _unknown_key(path, location, top, parts)
    if kind == "missing":
        return Problem(path, "missing", "", "a value")
    allowed = str(context.get("allowed", "")) or _allowed(kind, context)
    message = MESSAGES.get(kind, details["msg"])
    return Problem(path, message, shown(details["input"]), allowed or EXPECTED.get(kind, ""))


def _unknown_key(
    path: str, location: tuple[str | int, ...], top: type[BaseModel], parts: Mapping[str, type[BaseModel]]
) -> Problem:
    named = [step for step in location[:-1] if isinstance(step, str)]
    owner = parts.get(named[-1], top) if named else top
    known = sorted(owner.model_fields)
    meant = nearest(str(location[-1]), known)
    return Problem(path, "unknown key", shown(location[-1]), f"{meant}?" if meant else ", ".join(known))


def _allowed(kind: str, context: Mapping[str, Any]) -> str:
    if kind in LEAST:
        return f"{'above' if kind == 'greater_than' else 'at least'} {context[LEAST[kind]]}"
    if kind in MOST:
        return f"{'below' if kind == 'less_than' else 'at most'} {context[MOST[kind]]}"
    if kind in ("string_too_long", "too_long"):
        return f"at most {context['max_length']}"
    if kind in ("string_too_short", "too_short"):
        return f"at least {context['min_length']}"
    return str(context.get("expected", ""))


def _is_branch(step: str | int) -> bool:
    """A step that the model layer puts in for a choice between types, not a key of the document."""
    return step in (ONE_LINE, WORD_LIST, "[key]")


def _lone_role_problems(path: str, node: object) -> Iterator[Problem]:
    """The rules of single roles, for the roles that can be read although the document cannot."""
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
    """Each once, in an order that does not hang on how they were found."""
    return sorted(set(problems), key=lambda problem: (problem.path, problem.message, problem.given))
