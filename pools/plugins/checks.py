"""Validate environments. No entry may contain options, passwords or newlines."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from berth.core.problems import Problem, format_value
from pools.plugins.image import Image

PYTHON = re.compile(r"3\.1\d")
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
REQUIREMENT = re.compile(rf"{_NAME}(\s*\[[A-Za-z0-9._,\s-]*\])?\s*([<>=!~@;(][^\n\r\0]*)?")
PACKAGE = re.compile(_NAME)
URL = re.compile(r"(https?|file)://[^\s@\"'\\$`]+")
APT = re.compile(r"[a-z0-9][a-z0-9+.-]*(=[A-Za-z0-9.+:~-]+)?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PASSWORD = re.compile(r"://[^/\s]*@")
RESERVED = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_PRELOAD")
FIELDS = ("python", "pip", "indexes", "apt", "env")
ENTRIES_MAX, ENTRY_LENGTH_MAX = 500, 500
VALUE_LENGTH_MAX = 16_384


def image_problems(image: Image) -> Iterator[Problem]:
    """Yield the problems in an environment's settings, with relative paths such as `indexes[0].url`."""
    if image.python and not PYTHON.fullmatch(image.python):
        allowed = "3.10 or later, such as 3.12, or empty for the machine's default"
        yield Problem("python", "is not a valid Python version", format_value(image.python), allowed)
    yield from _requirement_problems(image.pip)
    for index, package_index in enumerate(image.indexes):
        yield from _pattern_problem(
            f"indexes[{index}].url", package_index.url, URL, "a URL without a password"
        )
        yield from _entry_problems(
            f"indexes[{index}].packages", package_index.packages, PACKAGE, "package names"
        )
    unscoped = [index for index, package_index in enumerate(image.indexes) if not package_index.packages]
    for index in unscoped[1:]:
        yield Problem(
            f"indexes[{index}].packages", "are missing", allowed="only one index may serve all other packages"
        )
    yield from _entry_problems("apt", image.apt, APT, "a Debian package, or name=version")
    yield from _variable_problems(image.env)
    for name in image.secrets:
        yield from _pattern_problem("secrets", name, VARIABLE, "the name of a variable")


def environment_problems(declared: Any) -> Iterator[Problem]:
    """Yield problems with a declared environment's structure, before its `Image` is built."""
    if not isinstance(declared, Mapping):
        yield Problem("", "is not a mapping", format_value(declared), ", ".join(FIELDS))
        return
    for name, value in declared.items():
        if name not in FIELDS:
            yield Problem(str(name), "unknown key", allowed=", ".join(FIELDS))
        elif name == "python" and not isinstance(value, str):
            yield Problem(name, "is not text", format_value(value), 'a version in quotes, such as "3.12"')
        elif name in ("pip", "apt"):
            yield from _text_list_problems(name, value)
        elif name == "env" and not _is_text_mapping(value):
            yield Problem(
                name,
                "is not a mapping of names to text values",
                format_value(value),
                "NAME: value, each text",
            )
        elif name == "indexes":
            yield from _index_problems(value)


def _index_problems(value: Any) -> Iterator[Problem]:
    if not isinstance(value, list | tuple):
        yield Problem(
            "indexes", "are not a list", format_value(value), "entries with url and optional packages"
        )
        return
    for number, entry in enumerate(value):
        item_path = f"indexes[{number}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("url"), str):
            yield Problem(item_path, "has no url", format_value(entry), "url, and optionally packages")
        elif unknown := sorted(set(entry) - {"url", "packages"}):
            yield Problem(f"{item_path}.{unknown[0]}", "unknown key", allowed="url, packages")
        else:
            yield from _text_list_problems(f"{item_path}.packages", entry.get("packages", []))


def _requirement_problems(value: Sequence[str]) -> Iterator[Problem]:
    allowed = "a pip requirement, such as numpy>=2"
    for index, text in enumerate(value[:ENTRIES_MAX]):
        if PASSWORD.search(text):
            yield Problem(f"pip[{index}]", "contains a password", "(not shown)", "a URL without a password")
        else:
            yield from _pattern_problem(f"pip[{index}]", text, REQUIREMENT, allowed)
    yield from _entry_count_problem("pip", value)


def _variable_problems(env: Mapping[str, str]) -> Iterator[Problem]:
    yield from _entry_count_problem("env", env)
    for name, value in env.items():
        if not VARIABLE.fullmatch(name):
            yield Problem(
                "env", "contains an invalid variable name", format_value(name), "letters, digits and _"
            )
        elif name in RESERVED or name.startswith("BERTH_"):
            yield Problem(f"env.{name}", "is set by Berth")
        elif "\0" in value or len(value) > VALUE_LENGTH_MAX:
            yield Problem(
                f"env.{name}", "cannot be set", allowed=f"up to {VALUE_LENGTH_MAX} characters, no NUL"
            )


def _entry_problems(
    path: str, value: Sequence[str], pattern: re.Pattern[str], allowed: str
) -> Iterator[Problem]:
    yield from _entry_count_problem(path, value)
    for index, text in enumerate(value[:ENTRIES_MAX]):
        yield from _pattern_problem(f"{path}[{index}]", text, pattern, allowed)


def _pattern_problem(path: str, text: str, pattern: re.Pattern[str], allowed: str) -> Iterator[Problem]:
    if len(text) > ENTRY_LENGTH_MAX or not pattern.fullmatch(text):
        received = "(not shown)" if PASSWORD.search(text) else format_value(text)
        yield Problem(path, "is not allowed", received, allowed)


def _text_list_problems(path: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, list | tuple):
        yield Problem(path, "is not a list", format_value(value), "a list of strings")
        return
    for index, text in enumerate(value):
        if not isinstance(text, str):
            yield Problem(f"{path}[{index}]", "is not text", format_value(text))


def _is_text_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(x, str) for pair in value.items() for x in pair)


def _entry_count_problem(path: str, value: Sequence[str] | Mapping[str, str]) -> Iterator[Problem]:
    if len(value) > ENTRIES_MAX:
        yield Problem(path, "has too many entries", str(len(value)), f"at most {ENTRIES_MAX}")
