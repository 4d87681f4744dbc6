"""Choose the server and the credentials: environment first, then the settings file of `berth login`."""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from berth.core.problems import Problem, shown

DEFAULT_ADDRESS = "http://127.0.0.1:8000"
KEYS = ("address", "token", "project")
FIRST = "default"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class BadSettings(ValueError):
    """An address or a settings file that cannot be used."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Address of the server, access token and default project."""

    address: str = DEFAULT_ADDRESS
    token: str = field(default="", repr=False)
    project: str = ""

    @property
    def is_local(self) -> bool:
        return urlsplit(self.address).hostname in LOOPBACK


@dataclass(frozen=True, slots=True)
class Contexts:
    """Servers by the name of their context, and the name of the current context."""

    current: str = ""
    servers: Mapping[str, Settings] = field(default_factory=dict)

    def chosen(self, name: str = "") -> Settings:
        """Return the named or the current server, else default settings; raise BadSettings if unknown."""
        if name and name not in self.servers:
            allowed = ", ".join(self.servers) or "none exists"
            raise BadSettings(str(Problem("context", "does not exist", shown(name), allowed)))
        return self.servers.get(name or self.current, Settings())

    def with_one(self, name: str, settings: Settings) -> "Contexts":
        return Contexts(name, {**self.servers, name: settings})

    def without(self, name: str) -> "Contexts":
        left = {key: settings for key, settings in self.servers.items() if key != name}
        return Contexts("" if self.current == name else self.current, left)


def load_settings(environ: Mapping[str, str] | None = None, path: Path | None = None) -> Settings:
    """Return the settings of the context that BERTH_CONTEXT names, or of the current one.

    BERTH_URL, BERTH_TOKEN and BERTH_PROJECT override the file. A stored token is sent only to the server that
    it was stored for.
    """
    environ = os.environ if environ is None else environ
    stored = read_contexts(path or settings_path(environ)).chosen(environ.get("BERTH_CONTEXT", ""))
    address = checked_address(environ.get("BERTH_URL") or stored.address)
    token = environ.get("BERTH_TOKEN") or (stored.token if address == stored.address else "")
    return Settings(address, token, environ.get("BERTH_PROJECT") or stored.project)


def settings_path(environ: Mapping[str, str] | None = None) -> Path:
    environ = os.environ if environ is None else environ
    if named := environ.get("BERTH_CONFIG"):
        return Path(named)
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "berth" / "config.toml"


def read_contexts(path: Path) -> Contexts:
    """Return the contexts of a settings file, none if there is no file; raise BadSettings if invalid."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = dict(values.get("contexts") or {})
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValueError) as error:
        raise BadSettings(f"{path} cannot be read: {error}") from None
    if any(key in values for key in KEYS):
        tables.setdefault(FIRST, values)  # a file of a version with one server
    servers = {str(name): _settings(table, path) for name, table in tables.items()}
    return Contexts(str(values.get("context") or (FIRST if FIRST in servers else "")), servers)


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file atomically, readable only by its owner."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(
        os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(_text(contexts))
    fresh.replace(path)


def _settings(table: object, path: Path) -> Settings:
    if not isinstance(table, dict):
        raise BadSettings(f"{path} cannot be read: a context has address, token and project")
    values = {key: str(table[key]) for key in KEYS if table.get(key)}
    if "address" in values:
        values["address"] = checked_address(values["address"])
    return Settings(**values)


def _text(contexts: Contexts) -> str:
    parts = [f"context = {_quoted(contexts.current)}\n"] if contexts.current else []
    for name, settings in contexts.servers.items():
        values = {"address": settings.address, "token": settings.token, "project": settings.project}
        lines = "".join(f"{key} = {_quoted(value)}\n" for key, value in values.items() if value)
        parts.append(f"[contexts.{_quoted(name)}]\n{lines}")
    return "\n".join(parts)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def checked_address(address: str) -> str:
    """Return the address without a trailing slash; raise BadSettings unless it is an http(s) address."""
    try:
        parts = urlsplit(address.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadSettings(str(Problem("address", str(error), shown(address)))) from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        allowed = "http://HOST[:PORT] or https://HOST[:PORT]"
        raise BadSettings(str(Problem("address", "is not an address", shown(address), allowed)))
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
