"""Parse durations, key-value pairs and amounts."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone

from berth.cli.exits import InvalidInput, invalid_value_error
from berth.core.backports import parse_iso_time

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
DURATION = re.compile(r"(\d{1,12})([smhd]?)", re.ASCII)
PERSONAL = "personal/"


def parse_duration(option: str, text: str) -> int:
    """Parse a duration such as 90, 45s, 30m, 2h or 7d, and return it in seconds."""
    match = DURATION.fullmatch(text)
    if match is None:
        allowed = "seconds, or a duration such as 45s, 30m, 2h or 7d"
        raise invalid_value_error(option, "is not a valid duration", text, allowed)
    return int(match[1]) * SECONDS[match[2]]


def parse_timestamp(option: str, text: str, now: datetime) -> str:
    """Convert a timestamp, or an age relative to `now`, to ISO format."""
    return _parse_moment(option, text, lambda seconds: now - seconds, "an age such as 2h")


def parse_future_timestamp(option: str, text: str, now: datetime) -> str:
    """Convert a timestamp, or a delay relative to `now`, to ISO format."""
    return _parse_moment(option, text, lambda seconds: now + seconds, "a duration such as 3d")


def _parse_moment(option: str, text: str, shift: Callable[[timedelta], datetime], form: str) -> str:
    if DURATION.fullmatch(text) and not text.isdigit():
        return shift(timedelta(seconds=parse_duration(option, text))).isoformat()
    try:
        parsed = parse_iso_time(text)
    except ValueError:
        allowed = f"a timestamp such as 2026-01-31T09:00, or {form}"
        raise invalid_value_error(option, "is not a valid time", text, allowed) from None
    return (parsed if parsed.tzinfo else parsed.astimezone()).astimezone(timezone.utc).isoformat()


def parse_number(option: str, text: str) -> int | float:
    """Parse a number, and return an int if it is whole."""
    try:
        value = float(text)
    except ValueError:
        raise invalid_value_error(option, "is not a number", text, "a number") from None
    return int(value) if value.is_integer() else value


def parse_number_or_text(text: str) -> int | float | str:
    """Parse a number. Return any other text, such as "800m" or "1Gi", unchanged for later validation."""
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def parse_number_or_unlimited(option: str, text: str) -> int | float | None:
    return None if text == "unlimited" else parse_number(option, text)


def parse_key_values(option: str, entries: Iterable[str]) -> dict[str, str]:
    """Parse KEY=VALUE entries. Raises InvalidInput if an entry is malformed or a key occurs twice."""
    values: dict[str, str] = {}
    for entry in entries:
        key, sign, value = entry.partition("=")
        if not sign or not key:
            raise invalid_value_error(option, "is not a KEY=VALUE pair", entry, "KEY=VALUE")
        if key in values:
            raise InvalidInput(f"{option}: {key} is set twice. Remove one of the values.")
        values[key] = value
    return values


def parse_idle_rule(text: str) -> dict[str, str]:
    """Parse a rule such as "below=5%,after=1h". An empty string removes the rule."""
    return parse_key_values("--idle-rule", text.split(",")) if text.strip() else {}


def parse_volume_mount(entry: str) -> dict[str, object]:
    """Parse NAME:PATH or NAME:PATH:ro."""
    name, _, rest = entry.partition(":")
    path, colon, mode = rest.partition(":")
    if not name or not path or (colon and mode != "ro"):
        raise invalid_value_error("--volume", "is not a valid volume", entry, "NAME:PATH or NAME:PATH:ro")
    return {"name": name, "path": path, **({"read_only": True} if mode else {})}


def parse_secret(option: str, key: str, entry: str) -> dict[str, str | bool]:
    """Parse NAME=VARIABLE or NAME=FILE into an item of the document's `secrets`.

    `key` is `env` or `file`. Raises InvalidInput if the text is malformed.
    """
    name, _, target = entry.partition("=")
    if not name.removeprefix(PERSONAL) or not target:
        form = "NAME=VARIABLE" if key == "env" else "NAME=FILE"
        raise invalid_value_error(option, "is not a valid secret", entry, form)
    return {**parse_secret_name(option, "name", name), key: target}


def parse_secret_name(option: str, key: str, text: str) -> dict[str, str | bool]:
    """Parse NAME or personal/NAME.

    Return {key: NAME}, with "personal": True for a personal secret. Raises InvalidInput if there is no name.
    """
    name = text.removeprefix(PERSONAL)
    if not name:
        raise invalid_value_error(option, "is not a valid secret name", text, "NAME, or personal/NAME")
    return {key: name, **({"personal": True} if name != text else {})}


def parse_toleration(entry: str) -> dict[str, str]:
    """Parse KEY=VALUE:EFFECT, KEY:EFFECT, KEY=VALUE or KEY. Without VALUE, every value is tolerated."""
    taint, _, effect = entry.partition(":")
    key, sign, value = taint.partition("=")
    parsed = {"key": key, "operator": "Equal", "value": value} if sign else {"key": key, "operator": "Exists"}
    return {**parsed, "effect": effect} if effect else parsed


def parse_dependency(text: str) -> dict[str, str]:
    """Parse WORKLOAD or WORKLOAD:STATE."""
    workload, colon, state = text.partition(":")
    return {"workload": workload, "state": state} if colon else {"workload": workload}
