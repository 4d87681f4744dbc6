"""Router client that edits an nginx upstream file and reloads nginx after each change.

The file is the only state and is replaced atomically. It contains only IP addresses that Berth has validated,
because nginx resolves host names later.
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

from projects.delivering.destination import ForbiddenAddress
from projects.delivering.http import to_printable_line
from projects.serving.addresses import PORTS, InvalidAddress, normalize
from projects.serving.base import ErrorKind, ServingError, Worker

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
LINE = re.compile(r"    server (?P<server>\S+?)(?P<down> down)?;  # (?P<address>\S+)")
NO_SERVER = "    server 127.0.0.1:9 down;  # no-engines"  # nginx rejects an upstream without servers
UNRESOLVED = "127.0.0.1:9"
RELOAD_SECONDS = 30.0
Resolve = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ListedEngine:
    """Inference engine in the upstream file. `server` is its validated address and port in nginx syntax."""

    server: str
    healthy: bool


class StaticRouter:
    """Router client that edits one service's upstream file.

    `resolve` returns the validated IP addresses of an engine's URL and raises ForbiddenAddress or OSError.
    `reload` is a command such as `nginx -s reload`.
    """

    kind = "static"

    def __init__(self, path: Path, upstream: str, *, resolve: Resolve, reload: Sequence[str] = ()) -> None:
        if not NAME.fullmatch(upstream):
            raise ValueError(f"{upstream!r} is not a valid upstream name")
        self.path, self.upstream, self.resolve, self.reload = path, upstream, resolve, tuple(reload)
        self._reload_pending = path.with_name(f".{path.name}.reload-pending")

    def register(self, engine: str, *, model: str) -> None:
        with self._edit_file() as listed:
            healthy = listed[engine].healthy if engine in listed else True
            listed[engine] = ListedEngine(self._choose_server(engine, listed), healthy)

    def unregister(self, engine: str) -> None:
        with self._edit_file() as listed:
            listed.pop(engine, None)

    def mark_unhealthy(self, engine: str) -> None:
        with self._edit_file() as listed:
            if engine in listed:
                listed[engine] = replace(listed[engine], healthy=False)

    def mark_healthy(self, engine: str) -> None:
        with self._edit_file() as listed:
            listed[engine] = ListedEngine(self._choose_server(engine, listed), healthy=True)

    def workers(self) -> tuple[Worker, ...]:
        """Return the listed inference engines, except engines whose host name now resolves to other
        addresses.
        """
        listed = self._read_file()
        return tuple(
            Worker(url, listed[url].healthy) for url in sorted(listed) if self._is_current(url, listed)
        )

    def unfinished_requests(self, engine: str) -> int | None:
        """Return None, because an upstream file contains no request counts."""
        return None

    @contextmanager
    def _edit_file(self) -> Iterator[dict[str, ListedEngine]]:
        """Lock the upstream file and yield its inference engines.

        If the `with` block changes them, write the file and reload nginx.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_name(f".{self.path.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                before = self._read_file()
                listed = dict(before)
                yield listed
                listed |= {
                    url: self._resolve_listed_address(url, listed)
                    for url in listed
                    if not _is_resolved(listed[url].server)
                }
                if listed != before or not self.path.exists():
                    self._reload_pending.touch()
                    self._write_file(listed)
                if self._reload_pending.exists():
                    self._reload_nginx()
                    self._reload_pending.unlink()
        except OSError as error:
            raise ServingError(ErrorKind.UNREACHABLE, str(self.path), str(error)) from None

    def _read_file(self) -> dict[str, ListedEngine]:
        """Return the inference engines in the file, keyed by URL."""
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return {}
        matches = [match for line in lines if (match := LINE.fullmatch(line))]
        return {
            match["address"]: ListedEngine(match["server"], match["down"] is None)
            for match in matches
            if "://" in match["address"]
        }

    def _choose_server(self, engine: str, listed: Mapping[str, ListedEngine]) -> str:
        """Return the `server` value for the engine.

        The value in the file is kept if it is still valid. Raises ServingError if the engine's address is
        forbidden or does not resolve.
        """
        _check_address(engine)
        try:
            servers = sorted(_format_server(address, engine) for address in self.resolve(engine))
        except ForbiddenAddress as rejected:
            raise ServingError(ErrorKind.FORBIDDEN, engine, str(rejected)) from None
        except OSError as error:
            raise ServingError(ErrorKind.UNREACHABLE, engine, str(error)) from None
        current = listed[engine].server if engine in listed else ""
        return current if current in servers else servers[0]

    def _is_current(self, engine: str, listed: Mapping[str, ListedEngine]) -> bool:
        if not _is_resolved(listed[engine].server):
            return False
        try:
            return self._choose_server(engine, listed) == listed[engine].server
        except ServingError:
            return True  # the listed address has been checked, and no newer one is known

    def _resolve_listed_address(self, engine: str, listed: Mapping[str, ListedEngine]) -> ListedEngine:
        """Return the inference engine with its host name resolved, because older releases wrote host names.

        An engine whose address cannot be used is returned as unhealthy.
        """
        try:
            return replace(listed[engine], server=self._choose_server(engine, listed))
        except ServingError:
            return ListedEngine(UNRESOLVED, healthy=False)

    def _write_file(self, listed: Mapping[str, ListedEngine]) -> None:
        """Replace the file atomically."""
        lines = [
            f"    server {listed[url].server}{'' if listed[url].healthy else ' down'};  # {url}"
            for url in sorted(listed)
        ]
        head = ["# This file is written by Berth.", f"upstream {self.upstream} {{"]
        text = "\n".join([*head, *(lines or [NO_SERVER]), "}", ""])
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(descriptor, "w") as temp_file:
                temp_file.write(text)
                temp_file.flush()
                os.fsync(temp_file.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _reload_nginx(self) -> None:
        if not self.reload:
            return
        name = self.reload[0]
        try:
            result = subprocess.run(self.reload, capture_output=True, timeout=RELOAD_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            message = f"{name} timed out after {RELOAD_SECONDS:g} s"
            raise ServingError(ErrorKind.TIMEOUT, str(self.path), message) from None
        if result.returncode:
            output = to_printable_line(result.stdout + result.stderr)[:200]
            message = f"{name} exited with {result.returncode}: {output}"
            raise ServingError(ErrorKind.REJECTED, str(self.path), message)


def _check_address(engine: str) -> None:
    try:
        normalize(engine)
    except InvalidAddress as error:
        raise ServingError(ErrorKind.FORBIDDEN, engine, str(error)) from None
    if engine != "".join(engine.split()):
        raise ServingError(ErrorKind.FORBIDDEN, engine, "an address must not contain spaces")
    if urlsplit(engine).path:
        message = "a static list supports only hosts and ports, without paths"
        raise ServingError(ErrorKind.UNSUPPORTED, engine, message)


def _format_server(address: str, engine: str) -> str:
    """Format an address and port in nginx syntax, without the protocol."""
    parts = urlsplit(engine)
    host, port = ipaddress.ip_address(address), parts.port or PORTS[parts.scheme]
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


def _is_resolved(server: str) -> bool:
    """Return whether the server is an IP address with a port, not a host name."""
    try:
        ipaddress.ip_address(server.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return server != UNRESOLVED
