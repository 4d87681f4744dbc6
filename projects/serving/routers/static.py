"""A router that is an nginx upstream in a file, which is replaced atomically.

The file is the only state. Each call reads it again, so a restarted process continues from it. After each
change, a command configured by the administrator reloads nginx. A failed reload is retried.

nginx resolves host names when it reloads. By then, a name may resolve to an address that Berth must not call.
The file therefore contains only IP addresses that were resolved and checked here.
"""

import fcntl
import ipaddress
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from projects.delivering.destination import Refused
from projects.delivering.http import readable
from projects.serving.addresses import PORTS, BadAddress, normalize
from projects.serving.base import ErrorKind, ServingError, Worker

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
LINE = re.compile(r"    server (?P<server>\S+?)(?P<down> down)?;  # (?P<address>\S+)")
NO_SERVER = "    server 127.0.0.1:9 down;  # no-engines"  # nginx refuses an upstream without a server
UNRESOLVED = "127.0.0.1:9"
RELOAD_SECONDS = 30.0
Resolve = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Listed:
    """One engine in the file. `server` is its checked address and port in nginx syntax."""

    server: str
    healthy: bool


class StaticList:
    """`resolve` returns the checked IP addresses of an engine's URL and raises Refused or OSError.

    `reload` is the command to run after each change, such as `nginx -s reload`.
    """

    kind = "static"

    def __init__(self, path: Path, upstream: str, *, resolve: Resolve, reload: Sequence[str] = ()) -> None:
        if not NAME.fullmatch(upstream):
            raise ValueError(f"{upstream!r} is not a valid upstream name")
        self.path, self.upstream, self.resolve, self.reload = path, upstream, resolve, tuple(reload)
        self._reload_pending = path.with_name(f".{path.name}.reload-pending")

    def register(self, engine: str, *, model: str) -> None:
        with self._transaction() as listed:
            healthy = listed[engine].healthy if engine in listed else True
            listed[engine] = Listed(self._server(engine, listed), healthy)

    def unregister(self, engine: str) -> None:
        with self._transaction() as listed:
            listed.pop(engine, None)

    def mark_unhealthy(self, engine: str) -> None:
        with self._transaction() as listed:
            if engine in listed:
                listed[engine] = replace(listed[engine], healthy=False)

    def mark_healthy(self, engine: str) -> None:
        with self._transaction() as listed:
            listed[engine] = Listed(self._server(engine, listed), healthy=True)

    def workers(self) -> tuple[Worker, ...]:
        """Return the listed engines, except those whose name now resolves to another address."""
        listed = self._read()
        return tuple(
            Worker(one, listed[one].healthy) for one in sorted(listed) if self._is_current(one, listed)
        )

    def running_requests(self, engine: str) -> int | None:
        """Return None, because a file does not count requests."""
        return None

    @contextmanager
    def _transaction(self) -> Iterator[dict[str, Listed]]:
        """Lock the file against other processes, and write and reload it if the yielded dict changes."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_name(f".{self.path.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                before = self._read()
                listed = dict(before)
                yield listed
                listed |= {
                    one: self._checked(one, listed) for one in listed if not _is_checked(listed[one].server)
                }
                if listed != before or not self.path.exists():
                    self._reload_pending.touch()
                    self._write(listed)
                if self._reload_pending.exists():
                    self._reload()
                    self._reload_pending.unlink()
        except OSError as error:
            raise ServingError(ErrorKind.UNREACHABLE, str(self.path), str(error)) from None

    def _read(self) -> dict[str, Listed]:
        """Return the listed engines by URL."""
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return {}
        matches = [match for line in lines if (match := LINE.fullmatch(line))]
        return {
            match["address"]: Listed(match["server"], match["down"] is None)
            for match in matches
            if "://" in match["address"]
        }

    def _server(self, engine: str, listed: Mapping[str, Listed]) -> str:
        """Return the listed address if the engine's name still resolves to it. Raises ServingError."""
        _require_plain(engine)
        try:
            servers = sorted(_server_at(address, engine) for address in self.resolve(engine))
        except Refused as refused:
            raise ServingError(ErrorKind.FORBIDDEN, engine, str(refused)) from None
        except OSError as error:
            raise ServingError(ErrorKind.UNREACHABLE, engine, str(error)) from None
        current = listed[engine].server if engine in listed else ""
        return current if current in servers else servers[0]

    def _is_current(self, engine: str, listed: Mapping[str, Listed]) -> bool:
        if not _is_checked(listed[engine].server):
            return False
        try:
            return self._server(engine, listed) == listed[engine].server
        except ServingError:
            return True  # the listed address was checked before, and there is no newer address

    def _checked(self, engine: str, listed: Mapping[str, Listed]) -> Listed:
        """Resolve a line with a host name, as written by older releases."""
        try:
            return replace(listed[engine], server=self._server(engine, listed))
        except ServingError:
            return Listed(UNRESOLVED, healthy=False)

    def _write(self, listed: Mapping[str, Listed]) -> None:
        """Replace the file atomically."""
        lines = [
            f"    server {listed[one].server}{'' if listed[one].healthy else ' down'};  # {one}"
            for one in sorted(listed)
        ]
        head = ["# This file is written by Berth.", f"upstream {self.upstream} {{"]
        text = "\n".join([*head, *(lines or [NO_SERVER]), "}", ""])
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "w") as beside:
                beside.write(text)
                beside.flush()
                os.fsync(beside.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _reload(self) -> None:
        if not self.reload:
            return
        name = self.reload[0]
        try:
            result = subprocess.run(self.reload, capture_output=True, timeout=RELOAD_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            message = f"{name} timed out after {RELOAD_SECONDS:g} s"
            raise ServingError(ErrorKind.TIMEOUT, str(self.path), message) from None
        if result.returncode:
            output = readable(result.stdout + result.stderr)[:200]
            message = f"{name} exited with {result.returncode}: {output}"
            raise ServingError(ErrorKind.REFUSED, str(self.path), message)


def _require_plain(engine: str) -> None:
    try:
        normalize(engine)
    except BadAddress as error:
        raise ServingError(ErrorKind.FORBIDDEN, engine, str(error)) from None
    if engine != "".join(engine.split()):
        raise ServingError(ErrorKind.FORBIDDEN, engine, "an address must not contain spaces")
    if urlsplit(engine).path:
        message = "a static list supports only hosts and ports, without paths"
        raise ServingError(ErrorKind.UNSUPPORTED, engine, message)


def _server_at(address: str, engine: str) -> str:
    """Return address and port in nginx syntax. The protocol is configured next to the upstream."""
    parts = urlsplit(engine)
    host, port = ipaddress.ip_address(address), parts.port or PORTS[parts.scheme]
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


def _is_checked(server: str) -> bool:
    """Return True for an IP address with a port, False for a host name."""
    try:
        ipaddress.ip_address(server.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return server != UNRESOLVED
