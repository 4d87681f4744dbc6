"""Read YAML or JSON workload documents from a file or stdin."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from berth.core.spec import Problem, SpecError

STDIN = "-"
SIZE_MAX = 10 * 2**20


class _StrictLoader(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys. The default loader would keep the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:bool":
                key.tag = "tag:yaml.org,2002:str"  # otherwise, YAML reads a key such as `on` as true
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} is set twice", key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_documents(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the source and content of each workload document in a file, or in stdin for `-`.

    Raises SpecError.
    """
    source = "stdin" if file == STDIN else file
    try:
        documents = [
            document for document in yaml.load_all(read_text(file), _StrictLoader) if document is not None
        ]
    except yaml.YAMLError as error:
        raise SpecError([Problem(source, "cannot be read", _describe_error(error), "YAML or JSON")]) from None
    except (RecursionError, ValueError) as error:
        raise SpecError([Problem(source, f"cannot be read: {error}", "", "YAML or JSON")]) from None
    if not documents:
        raise SpecError([Problem(source, "contains no document", "", "a workload document")])
    for number, document in enumerate(documents, 1):
        where = source if len(documents) == 1 else f"{source}, document {number}"
        if not isinstance(document, dict):
            raise SpecError(
                [Problem(where, "is not a workload document", type(document).__name__, "keys and values")]
            )
        yield where, document


def read_text(file: str) -> str:
    """Return the text of a file.

    `-` stands for stdin. Raises SpecError if the file is unreadable or too large.
    """
    try:
        data = sys.stdin.buffer.read(SIZE_MAX + 1) if file == STDIN else _read_bytes(Path(file))
        text = data.decode()
    except OSError as error:
        raise SpecError(
            [Problem(file, "cannot be opened", error.strerror or "", "a readable file")]
        ) from None
    except UnicodeDecodeError:
        raise SpecError([Problem(file, "is not UTF-8 text", "", "text encoded as UTF-8")]) from None
    if len(data) > SIZE_MAX:
        raise SpecError([Problem(file, "is too large", "", f"at most {SIZE_MAX >> 20} MiB")])
    return text


def _read_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SIZE_MAX + 1)


def _describe_error(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not YAML"
    return f"{problem} on line {mark.line + 1}" if mark else str(problem)
