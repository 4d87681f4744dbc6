"""Parse the volumes, disruption budgets, plugins and package indexes of pools."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from berth.cli.exits import InvalidInput, invalid_value_error
from berth.core.wording.reasons import plain_reason

BUDGET_KEYS = ("nodes", "reasons", "schedule", "duration", "zone")
BUDGET_SEPARATOR = re.compile(rf",\s*(?=(?:{'|'.join(BUDGET_KEYS)})=)")  # schedules may contain commas
PLUGIN_ALLOWED = "NAME, or NAME:KEY=VALUE,KEY=VALUE; VALUE as in YAML, or @FILE"
BUDGET_ALLOWED = f"nodes=N or N%, and {', '.join(BUDGET_KEYS[1:])}, as comma-separated KEY=VALUE"


def parse_budgets(entries: Iterable[str]) -> list[dict[str, Any]]:
    return [_parse_budget(entry) for entry in entries if entry.strip()]


def _parse_budget(entry: str) -> dict[str, Any]:
    budget: dict[str, Any] = {}
    for part in BUDGET_SEPARATOR.split(entry.strip()):
        key, equals, value = part.partition("=")
        if not equals or key not in BUDGET_KEYS or key in budget:
            raise invalid_value_error("--budget", "is not a valid disruption budget", entry, BUDGET_ALLOWED)
        budget[key] = (
            [reason for reason in re.split(r"[,+ ]+", value) if reason] if key == "reasons" else value
        )
    return budget


def parse_volume(entry: str) -> dict[str, object]:
    """Parse NAME=SOURCE with options, such as datasets=/mnt/data,read_write,projects=a+b,nodes=disk=fast."""
    allowed = "NAME=SOURCE[,read_write][,projects=NAME+NAME][,nodes=KEY=VALUE]"
    of_s3 = ("endpoint", "region", "secret", "max_gib")
    first, *options = entry.split(",")
    name, equals, source = first.partition("=")
    if not equals:
        raise invalid_value_error("--volume", "is not a valid volume", entry, allowed)
    labels: dict[str, str] = {}
    volume: dict[str, object] = {"name": name, "source": source, "nodes": labels}
    for option in options:
        key, equals, value = option.partition("=")
        label, label_equals, label_value = value.partition("=")
        if option in ("read_only", "read_write"):
            volume["access"] = option
        elif key == "projects" and equals:
            volume["projects"] = value.split("+")
        elif key == "nodes" and label_equals:
            labels[label] = label_value
        elif key in of_s3 and value:
            volume[key] = int(value) if key == "max_gib" and value.isdecimal() else value
        else:
            if source.startswith("s3://"):
                keys = ", ".join(("projects", "nodes", *of_s3))
                allowed = f"NAME=s3://BUCKET/PREFIX[,read_write][,OPTION=VALUE], OPTION: {keys}"
            raise invalid_value_error("--volume", "has an unknown option", option, allowed)
    return volume


def parse_plugins(entries: Iterable[str]) -> list[dict[str, Any]]:
    """Parse plugins, preserving their order. The server checks that the plugins exist."""
    return [_parse_plugin(entry) for entry in entries]


def parse_index(text: str) -> dict[str, Any]:
    """Parse URL or URL=numpy,scipy. A URL can contain "=", but a package name cannot contain "/"."""
    url, equals, names = text.rpartition("=")
    if not equals or "/" in names or "?" in url:
        return {"url": text, "packages": []}
    return {"url": url, "packages": [name.strip() for name in names.split(",") if name.strip()]}


def _parse_plugin(entry: str) -> dict[str, Any]:
    name, colon, settings = entry.partition(":")
    parameters: dict[str, Any] = {}
    for part in settings.split(",") if colon else ():
        key, equals, text = part.partition("=")
        if not equals or not key.strip() or key.strip() in parameters:
            raise invalid_value_error("--plugin", "is not a valid plugin", entry, PLUGIN_ALLOWED)
        parameters[key.strip()] = _parse_parameter(entry, text.strip())
    return {"name": name.strip(), "parameters": parameters} if parameters else {"name": name.strip()}


def _parse_parameter(entry: str, text: str) -> Any:
    import yaml

    if text.startswith("@"):
        try:
            return Path(text[1:]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"--plugin: {text[1:]} cannot be read: {plain_reason(error)}") from None
    try:
        read = yaml.safe_load(text)
        return text if isinstance(read, float) else read  # a version such as 12.10 must not be read as 12.1
    except yaml.YAMLError:
        raise invalid_value_error("--plugin", "is not a valid plugin", entry, PLUGIN_ALLOWED) from None
