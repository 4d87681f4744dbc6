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
    """Where the server is, the token to show it, and the project to use when none is named."""

    address: str = DEFAULT_ADDRESS
    token: str = field(default="", repr=False)
    project: str = ""

    @property
    def is_local(self) -> bool:
        return urlsplit(self.address).hostname in LOOPBACK


@dataclass(frozen=True, slots=True)
class Contexts:
    """Servers that one works with, by the names that one gave them, and which of them is meant now."""

    current: str = ""
    known: Mapping[str, Settings] = field(default_factory=dict)

    def chosen(self, name: str = "") -> Settings:
        """Of that name, else the present one; nothing special when there is none."""
        if name and name not in self.known:
            allowed = ", ".join(self.known) or "none exists"
            raise BadSettings(str(Problem("context", "does not exist", shown(name), allowed)))
        return self.known.get(name or self.current, Settings())

    def with_one(self, name: str, settings: Settings) -> "Contexts":
        return Contexts(name, {**self.known, name: settings})

    def without(self, name: str) -> "Contexts":
        left = {known: settings for known, settings in self.known.items() if known != name}
        return Contexts("" if self.current == name else self.current, left)


def load_settings(environ: Mapping[str, str] | None = None, path: Path | None = None) -> Settings:
    """BERTH_URL, BERTH_TOKEN and BERTH_PROJECT go before the file, of which BERTH_CONTEXT names a part. A
    stored token is shown to nobody but the server it was stored for."""
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
    """What the file says; none when there is no file."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = dict(values.get("contexts") or {})
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValueError) as error:
        raise BadSettings(f"{path} cannot be read: {error}") from None
    if any(key in values for key in KEYS):
        tables.setdefault(FIRST, values)  # a file of before there were several
    known = {str(name): _settings(table, path) for name, table in tables.items()}
    return Contexts(str(values.get("context") or (FIRST if FIRST in known else "")), known)


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replaced in one step, readable by its owner only."""
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
    known = {key: str(table[key]) for key in KEYS if table.get(key)}
    if "address" in known:
        known["address"] = checked_address(known["address"])
    return Settings(**known)


def _text(contexts: Contexts) -> str:
    parts = [f"context = {_quoted(contexts.current)}\n"] if contexts.current else []
    for name, settings in contexts.known.items():
        values = {"address": settings.address, "token": settings.token, "project": settings.project}
        said = "".join(f"{key} = {_quoted(value)}\n" for key, value in values.items() if value)
        parts.append(f"[contexts.{_quoted(name)}]\n{said}")
    return "\n".join(parts)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def checked_address(address: str) -> str:
    """The address without a trailing slash; anything that is not http or https with a host is refused."""
    try:
        parts = urlsplit(address.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadSettings(str(Problem("address", str(error), shown(address)))) from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        allowed = "http://HOST[:PORT] or https://HOST[:PORT]"
        raise BadSettings(str(Problem("address", "is not an address", shown(address), allowed)))
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
