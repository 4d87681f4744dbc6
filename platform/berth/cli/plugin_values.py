"""Parse plugin names and package indexes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from berth.cli.exits import BadInput

PLUGIN_ALLOWED = "NAME, or NAME:KEY=VALUE,KEY=VALUE; VALUE as in YAML, or @FILE"


def plugins_of(entries: Iterable[str]) -> list[dict[str, Any]]:
    """In the order given; whether there is such a plugin is for the server to say."""
    return [_plugin(entry) for entry in entries]


def index_of(text: str) -> dict[str, Any]:
    """URL=numpy,scipy; an address may itself hold a =, the names may not hold a slash."""
    url, equals, names = text.rpartition("=")
    if not equals or "/" in names or "?" in url:
        return {"url": text, "packages": []}
    return {"url": url, "packages": [name.strip() for name in names.split(",") if name.strip()]}


def _plugin(entry: str) -> dict[str, Any]:
    name, colon, said = entry.partition(":")
    parameters: dict[str, Any] = {}
    for part in said.split(",") if colon else ():
        key, equals, text = part.partition("=")
        if not equals or not key.strip() or key.strip() in parameters:
            raise BadInput(f"--plugin: given {entry!r}; allowed: {PLUGIN_ALLOWED}")
        parameters[key.strip()] = _value(entry, text.strip())
    return {"name": name.strip(), "parameters": parameters} if parameters else {"name": name.strip()}


def _value(entry: str, text: str) -> Any:
    import yaml

    if text.startswith("@"):
        try:
            return Path(text[1:]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"--plugin: {text[1:]} cannot be read: {error}") from None
    try:
        read = yaml.safe_load(text)
        return text if isinstance(read, float) else read  # 12.8 is a release, and so is 12.10
    except yaml.YAMLError:
        raise BadInput(f"--plugin: given {entry!r}; allowed: {PLUGIN_ALLOWED}") from None
