"""Here we find out which server to talk to and as whom: environment first, then the file that login wrote."""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_ADDRESS = "http://127.0.0.1:8000"
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


def load_settings(environ: Mapping[str, str] | None = None, path: Path | None = None) -> Settings:
    """BERTH_URL, BERTH_TOKEN and BERTH_PROJECT go before the file. A stored token is shown to nobody but
    the server it was stored for."""
    environ = os.environ if environ is None else environ
    stored = read_file(path or settings_path(environ))
    address = checked_address(environ.get("BERTH_URL") or stored.address)
    token = environ.get("BERTH_TOKEN") or (stored.token if address == stored.address else "")
    return Settings(address, token, environ.get("BERTH_PROJECT") or stored.project)


def settings_path(environ: Mapping[str, str] | None = None) -> Path:
    environ = os.environ if environ is None else environ
    if named := environ.get("BERTH_CONFIG"):
        return Path(named)
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "berth" / "config.toml"


def read_file(path: Path) -> Settings:
    """What the file says; nothing special when there is none."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"{path} cannot be read: {error}") from None
    known = {key: str(values[key]) for key in ("address", "token", "project") if values.get(key)}
    if "address" in known:
        known["address"] = checked_address(known["address"])
    return Settings(**known)


def write_file(path: Path, settings: Settings) -> None:
    """Replaced in one step, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    values = {"address": settings.address, "token": settings.token, "project": settings.project}
    text = "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items() if value
    )
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(
        os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
    fresh.replace(path)


def checked_address(address: str) -> str:
    """The address without a trailing slash; anything that is not http or https with a host is refused."""
    try:
        parts = urlsplit(address.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadSettings(f"address: {error}; given {address!r}") from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        raise BadSettings(f"address: given {address!r}; allowed: http://HOST[:PORT] or https://HOST[:PORT]")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
