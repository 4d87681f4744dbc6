"""Load the server address and credentials from the environment or the `berth login` file."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from berth.core.problems import Problem, format_value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_ADDRESS = "http://127.0.0.1:8000"
KEYS = ("address", "token", "project")
DEFAULT_CONTEXT = "default"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class InvalidSettings(ValueError):
    """Raised for an invalid address or settings file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Client settings: the server's address, the access token and the default project."""

    address: str = DEFAULT_ADDRESS
    token: str = field(default="", repr=False)
    project: str = ""

    @property
    def is_local(self) -> bool:
        return urlsplit(self.address).hostname in LOOPBACK


@dataclass(frozen=True, slots=True)
class Contexts:
    """Contents of the settings file: server settings, keyed by context name, and the name of the current
    context.
    """

    current: str = ""
    servers: Mapping[str, Settings] = field(default_factory=dict)

    def resolve(self, name: str = "") -> Settings:
        """Return the settings of the named or current context, or default settings if there is none.

        Raises InvalidSettings for an unknown name.
        """
        if name and name not in self.servers:
            allowed = ", ".join(self.servers) or "none exists"
            raise InvalidSettings(str(Problem("context", "does not exist", format_value(name), allowed)))
        return self.servers.get(name or self.current, Settings())

    def with_context(self, name: str, settings: Settings) -> "Contexts":
        return Contexts(name, {**self.servers, name: settings})

    def without_context(self, name: str) -> "Contexts":
        remaining = {key: settings for key, settings in self.servers.items() if key != name}
        return Contexts("" if self.current == name else self.current, remaining)


def load_settings(environ: Mapping[str, str] | None = None, path: Path | None = None) -> Settings:
    """Return the settings of the context that BERTH_CONTEXT names, or of the current context if it is unset.

    BERTH_URL, BERTH_TOKEN and BERTH_PROJECT override the file. A stored token is sent only to its own server.
    """
    environ = os.environ if environ is None else environ
    stored = read_contexts(path or settings_path(environ)).resolve(environ.get("BERTH_CONTEXT", ""))
    address = validate_address(environ.get("BERTH_URL") or stored.address)
    token = environ.get("BERTH_TOKEN") or (stored.token if address == stored.address else "")
    return Settings(address, token, environ.get("BERTH_PROJECT") or stored.project)


def settings_path(environ: Mapping[str, str] | None = None) -> Path:
    environ = os.environ if environ is None else environ
    if override := environ.get("BERTH_CONFIG"):
        return Path(override)
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "berth" / "config.toml"


def read_contexts(path: Path) -> Contexts:
    """Return the contexts in a settings file, if it exists. Raises InvalidSettings."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = dict(values.get("contexts") or {})
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValueError) as error:
        raise InvalidSettings(f"{path} cannot be read: {error}") from None
    if any(key in values for key in KEYS):
        tables.setdefault(DEFAULT_CONTEXT, values)  # a version that supported only one server wrote this file
    servers = {str(name): _parse_settings(table, path) for name, table in tables.items()}
    return Contexts(
        str(values.get("context") or (DEFAULT_CONTEXT if DEFAULT_CONTEXT in servers else "")), servers
    )


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Write the settings file atomically, readable only by its owner."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary_file = path.with_name(f"{path.name}.{os.getpid()}")
    temporary_file.unlink(missing_ok=True)
    with os.fdopen(
        os.open(temporary_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(_to_toml(contexts))
    temporary_file.replace(path)


def _parse_settings(table: object, path: Path) -> Settings:
    if not isinstance(table, dict):
        raise InvalidSettings(
            f"{path} contains an invalid context. Each context is a table with an address, a token and a "
            "project."
        )
    values = {key: str(table[key]) for key in KEYS if table.get(key)}
    if "address" in values:
        values["address"] = validate_address(values["address"])
    return Settings(**values)


def _to_toml(contexts: Contexts) -> str:
    parts = [f"context = {_quote(contexts.current)}\n"] if contexts.current else []
    for name, settings in contexts.servers.items():
        values = {"address": settings.address, "token": settings.token, "project": settings.project}
        lines = "".join(f"{key} = {_quote(value)}\n" for key, value in values.items() if value)
        parts.append(f"[contexts.{_quote(name)}]\n{lines}")
    return "\n".join(parts)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def validate_address(address: str) -> str:
    """Return the address without trailing slashes. Raises InvalidSettings if it is not an HTTP(S) URL."""
    try:
        parts = urlsplit(address.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidSettings(str(Problem("address", str(error), format_value(address)))) from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        allowed = "http://HOST[:PORT] or https://HOST[:PORT]"
        raise InvalidSettings(
            str(Problem("address", "is not a valid address", format_value(address), allowed))
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
