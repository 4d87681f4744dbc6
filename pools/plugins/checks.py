"""Validate an environment: no entry may contain options, passwords or newlines."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from berth.core.problems import Problem, shown
from pools.plugins.image import Image

PYTHON = re.compile(r"3\.1[1-9]")
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
REQUIREMENT = re.compile(rf"{_NAME}(\s*\[[A-Za-z0-9._,\s-]*\])?\s*([<>=!~@;(][^\n\r\0]*)?")
PACKAGE = re.compile(_NAME)
URL = re.compile(r"(https?|file)://[^\s@\"'\\$`]+")
APT = re.compile(r"[a-z0-9][a-z0-9+.-]*(=[A-Za-z0-9.+:~-]+)?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PASSWORD = re.compile(r"://[^/\s]*@")
OURS = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_PRELOAD")
FIELDS = ("python", "pip", "indexes", "apt", "env")
MOST, LONGEST = 500, 500
VALUE_LONGEST = 16_384


def problems_of_image(image: Image) -> Iterator[Problem]:
    """Each with its place below the image."""
    if image.python and not PYTHON.fullmatch(image.python):
        allowed = "3.11 or later, such as 3.12, or nothing for what the machine has"
        yield Problem("python", "is not a version of Python", shown(image.python), allowed)
    yield from _requirements(image.pip)
    for index, each in enumerate(image.indexes):
        yield from _text(f"indexes[{index}].url", each.url, URL, "an address without a password")
        yield from _each(f"indexes[{index}].packages", each.packages, PACKAGE, "names of packages")
    unscoped = [index for index, each in enumerate(image.indexes) if not each.packages]
    for index in unscoped[1:]:
        yield Problem(f"indexes[{index}].packages", "are missing", allowed="one index may be for all others")
    yield from _each("apt", image.apt, APT, "a Debian package, or name=version")
    yield from _variables(image.env)
    for name in image.secrets:
        yield from _text("secrets", name, VARIABLE, "the name of a variable")


def problems_of_declared(given: Any) -> Iterator[Problem]:
    """Of what people wrote, before it is an image: whether it has the form of one."""
    if not isinstance(given, Mapping):
        yield Problem("", "is not names with values", shown(given), ", ".join(FIELDS))
        return
    for name, value in given.items():
        if name not in FIELDS:
            yield Problem(str(name), "is not known", allowed=", ".join(FIELDS))
        elif name == "python" and not isinstance(value, str):
            yield Problem(name, "is not a text", shown(value), 'a version in quotes, such as "3.12"')
        elif name in ("pip", "apt"):
            yield from _texts(name, value)
        elif name == "env" and not _is_texts(value):
            yield Problem(name, "is not names with texts", shown(value), "NAME: value, each a text")
        elif name == "indexes":
            yield from _indexes(value)


def _indexes(given: Any) -> Iterator[Problem]:
    if not isinstance(given, list | tuple):
        yield Problem("indexes", "are not a list", shown(given), "each with url, and packages")
        return
    for number, each in enumerate(given):
        place = f"indexes[{number}]"
        if not isinstance(each, Mapping) or not isinstance(each.get("url"), str):
            yield Problem(place, "has no url", shown(each), "url, and packages")
        elif unknown := sorted(set(each) - {"url", "packages"}):
            yield Problem(f"{place}.{unknown[0]}", "is not known", allowed="url, packages")
        else:
            yield from _texts(f"{place}.packages", each.get("packages", []))


def _requirements(given: Sequence[str]) -> Iterator[Problem]:
    allowed = "a requirement as pip takes it, such as numpy>=2"
    for index, text in enumerate(given[:MOST]):
        if PASSWORD.search(text):
            yield Problem(f"pip[{index}]", "holds a password", "(not shown)", "an address without one")
        else:
            yield from _text(f"pip[{index}]", text, REQUIREMENT, allowed)
    yield from _not_too_many("pip", given)


def _variables(env: Mapping[str, str]) -> Iterator[Problem]:
    yield from _not_too_many("env", env)
    for name, value in env.items():
        if not VARIABLE.fullmatch(name):
            yield Problem("env", "holds a name that cannot be set", shown(name), "letters, digits and _")
        elif name in OURS or name.startswith("BERTH_"):
            yield Problem(f"env.{name}", "is set by Berth")
        elif "\0" in value or len(value) > VALUE_LONGEST:
            yield Problem(f"env.{name}", "cannot be set", allowed=f"up to {VALUE_LONGEST} characters, no NUL")


def _each(path: str, given: Sequence[str], pattern: re.Pattern[str], allowed: str) -> Iterator[Problem]:
    yield from _not_too_many(path, given)
    for index, text in enumerate(given[:MOST]):
        yield from _text(f"{path}[{index}]", text, pattern, allowed)


def _text(path: str, text: str, pattern: re.Pattern[str], allowed: str) -> Iterator[Problem]:
    if len(text) > LONGEST or not pattern.fullmatch(text):
        given = "(not shown)" if PASSWORD.search(text) else shown(text)
        yield Problem(path, "is not allowed", given, allowed)


def _texts(path: str, given: Any) -> Iterator[Problem]:
    if not isinstance(given, list | tuple):
        yield Problem(path, "is not a list", shown(given), "a list of texts")
        return
    for index, text in enumerate(given):
        if not isinstance(text, str):
            yield Problem(f"{path}[{index}]", "is not a text", shown(text))


def _is_texts(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(x, str) for pair in given.items() for x in pair)


def _not_too_many(path: str, given: Sequence[str] | Mapping[str, str]) -> Iterator[Problem]:
    if len(given) > MOST:
        yield Problem(path, "has too many entries", str(len(given)), f"at most {MOST}")
