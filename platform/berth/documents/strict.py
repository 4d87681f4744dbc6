"""Parse untrusted YAML with bounded depth and without duplicate keys or aliases."""

from collections.abc import Hashable
from typing import Any

import yaml

from berth.core.errors import Invalid, Malformed
from berth.core.problems import Problem, format_value
from berth.documents.reading import SafeLoader

DEPTH_MAX = 64
TOO_DEEP = "The body is nested too deeply."
TEXT_MAX = 256 * 1024
BOOLEAN, TEXT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:str"
NO_REFERENCES = "Anchors and aliases (& and *) are not supported: write the values out."

# Phrases from common YAML errors, and a plain remedy for each.
REMEDIES = (
    ("mapping values are not allowed", "put quotes around values that contain a colon and a space"),
    (
        "cannot start any token",
        "indent with spaces instead of tabs, and put quotes around values with @ or `",
    ),
)
NO_CONTENT = "did not find expected node content"
# Plain words for the parser's errors. If the flag is True, the line to repair is where the error begins.
# The parser often stops on the next line.
PLAIN_WORDS = (
    (NO_CONTENT, "a value is missing, or a ] or } has no opening bracket", False),
    (
        "found a tab character that violates indentation",
        "the line is indented with a tab instead of spaces",
        False,
    ),
    ("did not find expected ',' or ']'", "a [ is not closed, or a comma is missing", True),
    ("did not find expected ',' or '}'", "a { is not closed, or a comma is missing", True),
    ("found unexpected end of stream", "a quote is not closed", True),
    ("could not find expected ':'", "a key has no colon", True),
    ("did not find expected '-' indicator", "the indentation differs from the lines above", False),
    (
        "did not find expected key",
        "the indentation differs from the lines above, or text follows a quoted value",
        False,
    ),
)


class InvalidYaml(Malformed):
    """Raised for invalid YAML. `line` counts from 1 and is None if the error has no line."""

    def __init__(self, detail: str, line: int | None = None) -> None:
        super().__init__(detail)
        self.line = line


def read_yaml(body: bytes) -> Any:
    """Parse YAML. The nesting is checked first, because the C parser recurses without a limit."""
    try:
        check_structure(body)
        return yaml.load(body, Loader=PlainLoader)  # noqa: S506, PlainLoader is a SafeLoader
    except RecursionError:
        raise InvalidYaml(TOO_DEEP) from None
    except (
        yaml.YAMLError,
        ValueError,
        AttributeError,
        KeyError,
        TypeError,
    ) as error:  # raised for an invalid !!timestamp or !!bool
        raise InvalidYaml(f"The body is not valid YAML: {_describe(error)}.", _line(error)) from None


def read_text(text: str) -> Any:
    return read_yaml(text.encode("utf-8", "surrogatepass"))


def read_document(text: str) -> dict[str, Any]:
    """Parse a YAML or JSON mapping. Raises Invalid, with the line of the problem if it is known."""
    if len(text) > TEXT_MAX:
        raise Invalid(
            [Problem("", "is too long", f"{len(text):,} characters", f"at most {TEXT_MAX:,} characters")]
        )
    try:
        document = read_text(text)
    except InvalidYaml as error:
        detail = error.detail.removeprefix("The body ").removesuffix(".")
        where = {} if error.line is None else {"line": error.line}
        raise Invalid([Problem("", detail)], **where) from None
    if not isinstance(document, dict):
        raise Invalid([Problem("", "is not a mapping", format_value(document), "key: value, one per line")])
    return document


def check_structure(body: bytes) -> None:
    """Raise InvalidYaml for deep nesting, aliases, or a bracket without a value.

    Aliases are not allowed, because a few lines of them can expand to gigabytes.
    """
    opened: list[yaml.CollectionStartEvent] = []
    try:
        for event in yaml.parse(body, Loader=SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise InvalidYaml(NO_REFERENCES, _line_at(event.start_mark))
            if isinstance(event, yaml.CollectionStartEvent):
                opened.append(event)
                if len(opened) > DEPTH_MAX:
                    raise InvalidYaml(TOO_DEEP, _line_at(event.start_mark))
            elif isinstance(event, yaml.CollectionEndEvent):
                opened.pop()
    except yaml.MarkedYAMLError as error:
        if error.problem != NO_CONTENT or not opened or not opened[-1].flow_style:
            raise
        sign = "[" if isinstance(opened[-1], yaml.SequenceStartEvent) else "{"
        message = f"The body is not valid YAML: a {sign} is not closed, or a value is missing."
        raise InvalidYaml(message, _line_at(opened[-1].start_mark)) from None


class PlainLoader(SafeLoader):
    """YAML loader that rejects duplicate keys and reads keys such as `on` as text."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        for key, _ in node.value:
            if key.tag == BOOLEAN:
                key.tag = TEXT
        pairs: dict[Hashable, Any] = super().construct_mapping(node, deep)
        if len(pairs) < len(node.value):
            line = node.start_mark.line + 1
            raise InvalidYaml(
                f"The mapping that starts on line {line} has a duplicate key. Remove the duplicate.", line
            )
        return pairs


def _describe(error: Exception) -> str:
    message = str(getattr(error, "problem", None) or error).splitlines()[0][:200]
    if plain := next((words for problem, words, _ in PLAIN_WORDS if problem == message), ""):
        return plain
    return next((f"{message}; {remedy}" for part, remedy in REMEDIES if part in message), message)


def _line(error: Exception) -> int | None:
    problem = getattr(error, "problem", None)
    begins = any(is_marked_there for each, _, is_marked_there in PLAIN_WORDS if each == problem)
    return _line_at(getattr(error, "context_mark" if begins else "problem_mark", None))


def _line_at(mark: Any) -> int | None:
    return None if mark is None else int(mark.line) + 1
