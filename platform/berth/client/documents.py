"""Read workload documents from files or stdin: YAML or JSON, one or several."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from berth.core.spec import Problem, SpecError

STDIN = "-"
SIZE_MAX = 10 * 2**20


class _Strict(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys; the default loader keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:bool":
                key.tag = "tag:yaml.org,2002:str"  # `on` is a key and not a yes
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} is set twice", key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_documents(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the source and the content of each document of a file; `-` is stdin. Raises SpecError."""
    place = "stdin" if file == STDIN else file
    try:
        documents = [document for document in yaml.load_all(read_text(file), _Strict) if document is not None]
    except yaml.YAMLError as error:
        raise SpecError([Problem(place, "cannot be read", _where(error), "YAML or JSON")]) from None
    except (RecursionError, ValueError) as error:
        raise SpecError([Problem(place, f"cannot be read: {error}", "", "YAML or JSON")]) from None
    if not documents:
        raise SpecError([Problem(place, "holds no document", "", "a workload document")])
    for number, document in enumerate(documents, 1):
        where = place if len(documents) == 1 else f"{place}, document {number}"
        if not isinstance(document, dict):
            raise SpecError(
                [Problem(where, "is not a workload document", type(document).__name__, "keys and values")]
            )
        yield where, document


def read_text(file: str) -> str:
    """Return the text of a file; `-` is stdin. Raises SpecError."""
    try:
        data = sys.stdin.buffer.read(SIZE_MAX + 1) if file == STDIN else _bytes(Path(file))
        text = data.decode()
    except OSError as error:
        raise SpecError(
            [Problem(file, "cannot be opened", error.strerror or "", "a readable file")]
        ) from None
    except UnicodeDecodeError:
        raise SpecError([Problem(file, "is not text", "", "UTF-8")]) from None
    if len(data) > SIZE_MAX:
        raise SpecError([Problem(file, "is too large", "", f"at most {SIZE_MAX >> 20} MiB")])
    return text


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SIZE_MAX + 1)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not YAML"
    return f"{problem} in line {mark.line + 1}" if mark else str(problem)
