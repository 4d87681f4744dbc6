"""Parse JSON and YAML strictly."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from berth.core.problems import Problem, format_value, join_path
from scheduler.simulator.scenario.errors import ScenarioError

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEPTH_MAX = 64
REPEATED_MAX = 100_000


def read(path: str | Path) -> object:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ScenarioError(
            [Problem("", f"cannot be read: {_error_reason(error)}", format_value(str(path)))]
        ) from None
    return parse(text)


def parse(text: str) -> object:
    """Parse JSON or YAML.

    Text that looks like JSON is parsed as JSON, because parsing YAML is slow.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text, object_pairs_hook=_mapping_without_duplicates)
        except json.JSONDecodeError:
            pass  # the text may still be valid YAML
        except RecursionError:
            raise _parse_error("too deep") from None
    return _parse_yaml(text)


def _parse_yaml(text: str) -> object:
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _DocumentCheck().check(node, (), ())
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise _parse_error(f"is not valid YAML{where}") from None
    except (RecursionError, ValueError):
        raise _parse_error("is not valid YAML") from None
    finally:
        loader.dispose()


class _DocumentCheck:
    """Checker that rejects YAML documents with duplicate keys, recursion or alias bombs."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._repeated = 0

    def check(self, node: Any, path: tuple[str | int, ...], ancestors: tuple[int, ...]) -> None:
        if id(node) in ancestors:
            raise ScenarioError([Problem(join_path(path), "contains itself")])
        if len(path) > DEPTH_MAX:
            raise _parse_error("too deep")
        self._repeated += id(node) in self._seen
        if self._repeated > REPEATED_MAX:
            allowed = f"{REPEATED_MAX} values through aliases"
            raise ScenarioError(
                [Problem(join_path(path), "repeats too many values through aliases", "", allowed)]
            )
        self._seen.add(id(node))
        for name, value in _children(node, path):
            self.check(value, (*path, name), (*ancestors, id(node)))


def _children(node: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, Any]]:
    if isinstance(node, yaml.SequenceNode):
        yield from enumerate(node.value)
    elif isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else format_value(key.tag)
            if name in keys:
                raise ScenarioError([Problem(join_path((*path, name)), "is listed twice")])
            keys.add(name)
            yield name, value


def _mapping_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ScenarioError([Problem(join_path((key,)), "is listed twice")])
        mapping[key] = value
    return mapping


def _parse_error(message: str) -> ScenarioError:
    return ScenarioError([Problem("", message)])


def _error_reason(error: Exception) -> str:
    return (error.strerror or "no such file") if isinstance(error, OSError) else "not UTF-8 text"
