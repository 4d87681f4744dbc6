"""The valid part of an invalid workload document, for checks of its other values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from berth.core.problems import Problem, closest_match, join_path
from berth.core.spec.parsing.findings import independent_errors
from berth.core.spec.roles import RoleSpec
from berth.core.spec.workload import WorkloadSpec

# Valid placeholders for required values.
STAND_INS: Mapping[str, Any] = {"name": "workload", "command": "true"}
# Keys whose values say whether a command is required.
COMMAND_KEYS = frozenset({"command", "args", "image", "kind", "roles", "groups"})
KEYS = (*WorkloadSpec.model_fields, *RoleSpec.model_fields)
MAX_ATTEMPTS = 4  # the removal of a value can make another one invalid
MAX_ERRORS = 100  # documents with more errors are not checked further


@dataclass(slots=True)
class ValidPart:
    """Document without its invalid values. `spec` is None if too little is left."""

    spec: WorkloadSpec | None = None
    removed: set[str] = field(default_factory=set)  # paths of the removed values

    def is_affected(self, problem: Problem) -> bool:
        """Return whether the problem may result from a removed value."""
        return any(_is_within(problem.path, path) or _is_within(path, problem.path) for path in self.removed)


def parse_valid_part(document: Mapping[Any, Any]) -> ValidPart:
    """Parse a document without its invalid values."""
    part, rest = ValidPart(), _copy(document)
    for _ in range(MAX_ATTEMPTS):
        errors = _parse_rest(rest, part)
        if len(errors) > MAX_ERRORS:
            break
        # Last items first, because their removal does not change the indexes of the others.
        for details in reversed(errors):
            part.removed.update(_remove_value(rest, details))
        if not errors:
            break
    return part


def _parse_rest(rest: dict[Any, Any], part: ValidPart) -> list[ErrorDetails]:
    try:
        part.spec = WorkloadSpec.model_validate(rest)
    except ValidationError as error:
        return independent_errors(error)
    return []


def _remove_value(document: dict[Any, Any], details: ErrorDetails) -> Iterator[str]:
    """Remove the invalid value, and yield the paths that other problems may no longer name."""
    location = [*details["loc"], *filter(None, [details.get("ctx", {}).get("at")])]
    parent: Any = None
    node: Any = document
    path: list[Any] = []
    for step in location:
        if not _has_step(node, step):  # the name of a type, or a missing key
            continue
        parent, node = node, node[step]
        path.append(step)
    key = location[-1] if location else ""
    if details["type"] == "missing" and key in STAND_INS and not path:
        document[key] = STAND_INS[str(key)]
        yield str(key)
        return
    if not path:
        return
    del parent[path[-1]]
    # The indexes of the following items have changed.
    yield join_path(path[:-1] if isinstance(path[-1], int) else path)
    last = path[-1]
    if details["type"] == "extra_forbidden":
        last = closest_match(str(last), KEYS)
        yield join_path([*path[:-1], last])
    if last in COMMAND_KEYS:
        document["command"] = STAND_INS["command"]
        yield "command"


def _has_step(node: Any, step: str | int) -> bool:
    if isinstance(node, dict):
        return step in node
    return isinstance(node, list) and isinstance(step, int) and step < len(node)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list | tuple) else value


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))
