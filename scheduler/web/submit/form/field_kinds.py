"""Convert between document values and form field text."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth.core.spec.sections.retry_text import InvalidRetryText, format_retry_text, parse_retry_text
from berth.documents.edits import ABSENT

INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})", re.ASCII)
DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{0,9}", re.ASCII)
MEMORY_TEXT = re.compile(r"([0-9]{1,12})\s*([MGT])i[bB]?", re.ASCII)
DURATION = re.compile(r"([0-9]{1,12})\s*(s|m|min|h|d)", re.ASCII)
FILE_PREFIX = "file:"
PERSONAL_PREFIX = "personal/"
MIB = {"M": 1, "G": 1024, "T": 1024**2}
SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


class InvalidFieldText(Exception):
    """Raised if the text in a field is invalid. `allowed` describes the valid values."""

    def __init__(self, message: str, received: str, allowed: str) -> None:
        super().__init__(message)
        self.message, self.received, self.allowed = message, received, allowed


@dataclass(frozen=True, slots=True)
class FieldKind:
    """Conversions between text and values for one kind of field.

    `format_value` returns None for a value that the field cannot show.
    """

    widget: str
    format_value: Callable[[Any, str | None], str | None]
    parse_text: Callable[[str, Any], Any]


def _format_scalar(value: Any, written: str | None) -> str | None:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return None
    return written if written is not None else str(value)


def _format_command(value: Any, written: str | None) -> str | None:
    if isinstance(value, list):
        words = [word for word in value if isinstance(word, str) and "\n" not in word]
        return "\n".join(words) if len(words) == len(value) else None
    text = _format_scalar(value, written)
    return None if text is None else text.rstrip("\n")


def _format_pairs(value: Any, written: str | None) -> str | None:
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return None
    lines = []
    for key, one in value.items():
        text = "true" if one is True else "false" if one is False else str(one)
        if isinstance(one, dict | list) or one is None or "\n" in text or "=" in str(key):
            return None
        lines.append(f"{key}={text}")
    return "\n".join(lines)


def _format_secrets(value: Any, written: str | None) -> str | None:
    if value is None:
        return ""
    if not isinstance(value, list):
        return None
    lines = []
    for use in value:
        if not isinstance(use, Mapping) or set(use) - {"personal"} not in ({"name", "env"}, {"name", "file"}):
            return None
        if use.get("personal", False) not in (True, False):
            return None
        target = str(use["env"]) if "env" in use else FILE_PREFIX + str(use["file"])
        lines.append(f"{PERSONAL_PREFIX if use.get('personal') else ''}{use['name']}={target}")
    return "\n".join(lines)


def _format_retry(value: Any, written: str | None) -> str | None:
    if value is None:
        return ""
    lines = [format_retry_text(rule) for rule in value] if isinstance(value, list) else [None]
    return None if None in lines else "\n".join(line for line in lines if line)


def _format_names(value: Any, written: str | None) -> str | None:
    return _join_texts(value, ", ")


def _format_paths(value: Any, written: str | None) -> str | None:
    return _join_texts(value, "\n")


def _join_texts(value: Any, separator: str) -> str | None:
    if value is None:
        return ""
    if not isinstance(value, list) or any(
        not isinstance(text, str) or separator.strip(" ") in text for text in value
    ):
        return None
    return separator.join(value)


def _format_seconds(value: Any, written: str | None) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return _format_scalar(value, written)
    for unit in ("d", "h", "m"):
        if value % SECONDS[unit] == 0:
            return f"{value // SECONDS[unit]}{unit}"
    return f"{value}s"


def format_memory(mib: int) -> str:
    """Format an amount in the largest unit that needs no fraction, such as 4 GiB."""
    unit = next((unit for unit in ("T", "G") if mib and mib % MIB[unit] == 0), "M")
    return f"{mib // MIB[unit]} {unit}iB"


def _format_memory(value: Any, written: str | None) -> str | None:
    if isinstance(value, str) and (match := MEMORY_TEXT.fullmatch(value)):
        return f"{match[1]} {match[2]}iB"
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return _format_scalar(value, written)
    return format_memory(value)


def _parse_text(text: str, _: Any) -> Any:
    return text.strip() or ABSENT


def _parse_amount(text: str, _: Any) -> Any:
    """Parse a plain number. Other text is returned unchanged, to be validated later."""
    text = text.strip()
    if INTEGER.fullmatch(text):
        return int(text)
    return float(text) if DECIMAL.fullmatch(text) else text or ABSENT


def _parse_seconds(text: str, now: Any) -> Any:
    """Parse a duration such as 2h, and return it as text with a unit.

    If the duration equals `now`, return `now` unchanged.
    """
    match = DURATION.fullmatch(text.strip())
    if match is None:
        return _parse_amount(text, now)
    return (
        now if now == int(match[1]) * SECONDS[match[2]] else f"{int(match[1])}{match[2].removesuffix('in')}"
    )


def _parse_memory(text: str, now: Any) -> Any:
    """Parse an amount of memory, and convert it to MiB."""
    match = MEMORY_TEXT.fullmatch(text.strip())
    return int(match[1]) * MIB[match[2]] if match else _parse_amount(text, now)


def _parse_command(text: str, now: Any) -> Any:
    if not text.strip():
        return ABSENT
    return [line for line in text.split("\n") if line] if isinstance(now, list) else text


def _parse_pairs(text: str, _: Any) -> Any:
    labels: dict[str, str] = {}
    for line in text.split("\n"):
        key, sign, value = line.partition("=")
        key = key.strip()
        if not line.strip():
            continue
        if not sign or not key:
            raise InvalidFieldText("must be NAME=VALUE", line.strip()[:80], "NAME=VALUE, one per line")
        if key in labels:
            raise InvalidFieldText("is set twice", key[:80], "unique names")
        labels[key] = value
    return labels or ABSENT


def _parse_secrets(text: str, _: Any) -> Any:
    uses = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, _, target = line.partition("=")
        personal = {"personal": True} if name.startswith(PERSONAL_PREFIX) else {}
        name = name.removeprefix(PERSONAL_PREFIX)
        file = target.removeprefix(FILE_PREFIX)
        if not name or not file:
            allowed = f"NAME=VARIABLE or NAME={FILE_PREFIX}FILE, one per line"
            raise InvalidFieldText("is not a valid secret entry", line[:80], allowed)
        key = "env" if file == target else "file"
        uses.append({"name": name, key: file, **personal})
    return uses or ABSENT


def _parse_retry(text: str, _: Any) -> Any:
    try:
        return [parse_retry_text(line) for line in text.split("\n") if line.strip()] or ABSENT
    except InvalidRetryText as error:
        raise InvalidFieldText(error.message, error.received, error.allowed) from None


def _parse_names(text: str, _: Any) -> Any:
    return [name.strip() for name in text.split(",") if name.strip()] or ABSENT


def _parse_paths(text: str, _: Any) -> Any:
    return [path.strip() for path in text.split("\n") if path.strip()] or ABSENT


def _parse_flag(text: str, _: Any) -> Any:
    return {"true": True, "false": False, "": ABSENT}.get(text, text)


TEXT = FieldKind("input", _format_scalar, _parse_text)
AMOUNT = FieldKind("number", _format_scalar, _parse_amount)
SECONDS_KIND = FieldKind("number", _format_seconds, _parse_seconds)
MEMORY = FieldKind("number", _format_memory, _parse_memory)
CHOICE = FieldKind("select", _format_scalar, _parse_text)
NUMBER_CHOICE = FieldKind("select", _format_scalar, _parse_amount)
FLAG = FieldKind("select", _format_scalar, _parse_flag)
COMMAND = FieldKind("lines", _format_command, _parse_command)
PAIRS = FieldKind("lines", _format_pairs, _parse_pairs)
SECRETS = FieldKind("lines", _format_secrets, _parse_secrets)
RETRY = FieldKind("lines", _format_retry, _parse_retry)
PATHS = FieldKind("lines", _format_paths, _parse_paths)
GIT_SECRET = FieldKind("input", _format_scalar, _parse_text)  # formatted and written by `git_secret`
NAMES = FieldKind("input", _format_names, _parse_names)


def select_in_current_order(chosen: Sequence[str], now: Any) -> Any:
    """Return the selected values in their current order, followed by new ones, or ABSENT if no value is
    selected.
    """
    before = [one for one in now if isinstance(one, str)] if isinstance(now, list) else []
    remaining = [one for one in before if one in chosen]
    return [*remaining, *(one for one in chosen if one not in remaining)] or ABSENT
