"""A router whose engines are listed in a file that nginx includes: an upstream, written whole or not at all.

The file is the only state: each call reads it again, so a restarted process continues from it. After each
change a command of the administrator makes nginx reload; a change for which it failed is reported again.

nginx resolves host names by itself when it reloads, and by then a name may lead to an address that Berth must
not call. The file therefore holds only IP addresses that were resolved and checked here.
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
from projects.serving.addresses import PORTS, BadAddress, normalised
from projects.serving.base import ServingError, Trouble, Worker

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
LINE = re.compile(r"    server (?P<server>\S+?)(?P<down> down)?;  # (?P<address>\S+)")
NOBODY = "    server 127.0.0.1:9 down;  # nobody"  # nginx refuses an upstream without a server
UNRESOLVED = "127.0.0.1:9"
RELOAD_SECONDS = 30.0
Resolve = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Listed:
    """One engine in the file. `server`: its checked address and port, as nginx writes them."""

    server: str
    healthy: bool


class StaticList:
    """`resolve`: the IP addresses that an engine's URL leads to now, checked; it raises Refused or OSError.

    `reload`: the command that is run after each change, if any, such as `nginx -s reload`.
    """

    kind = "static"

    def __init__(self, path: Path, upstream: str, *, resolve: Resolve, reload: Sequence[str] = ()) -> None:
        if not NAME.fullmatch(upstream):
            raise ValueError(f"{upstream!r} is no name of an upstream")
        self.path, self.upstream, self.resolve, self.reload = path, upstream, resolve, tuple(reload)
        self._untold = path.with_name(f".{path.name}.untold")

    def register(self, engine: str, *, model: str) -> None:
        with self._changing() as has:
            healthy = has[engine].healthy if engine in has else True
            has[engine] = Listed(self._server(engine, has), healthy)

    def unregister(self, engine: str) -> None:
        with self._changing() as has:
            has.pop(engine, None)

    def mark_unhealthy(self, engine: str) -> None:
        with self._changing() as has:
            if engine in has:
                has[engine] = replace(has[engine], healthy=False)

    def mark_healthy(self, engine: str) -> None:
        with self._changing() as has:
            has[engine] = Listed(self._server(engine, has), healthy=True)

    def workers(self) -> tuple[Worker, ...]:
        """Without engines whose name leads elsewhere by now: they have to be registered again."""
        has = self._read()
        return tuple(Worker(one, has[one].healthy) for one in sorted(has) if self._is_current(one, has))

    def running_requests(self, engine: str) -> int | None:
        """A file does not know."""
        return None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Listed]]:
        """One at a time, whichever process it is in."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_name(f".{self.path.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                before = self._read()
                has = dict(before)
                yield has
                has |= {one: self._checked(one, has) for one in has if not _is_checked(has[one].server)}
                if has != before or not self.path.exists():
                    self._untold.touch()
                    self._write(has)
                if self._untold.exists():
                    self._tell()
                    self._untold.unlink()
        except OSError as error:
            raise ServingError(Trouble.UNREACHABLE, str(self.path), str(error)) from None

    def _read(self) -> dict[str, Listed]:
        """By URL."""
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return {}
        found = [match for line in lines if (match := LINE.fullmatch(line))]
        return {
            match["address"]: Listed(match["server"], match["down"] is None)
            for match in found
            if match["address"] != "nobody"
        }

    def _server(self, engine: str, has: Mapping[str, Listed]) -> str:
        """The address in the file if the engine's name still leads there. Raises ServingError."""
        _require_plain(engine)
        try:
            servers = sorted(_server_at(address, engine) for address in self.resolve(engine))
        except Refused as refused:
            raise ServingError(Trouble.FORBIDDEN, engine, str(refused)) from None
        except OSError as error:
            raise ServingError(Trouble.UNREACHABLE, engine, str(error)) from None
        present = has[engine].server if engine in has else ""
        return present if present in servers else servers[0]

    def _is_current(self, engine: str, has: Mapping[str, Listed]) -> bool:
        if not _is_checked(has[engine].server):
            return False
        try:
            return self._server(engine, has) == has[engine].server
        except ServingError:
            return True  # what the file holds was checked, and there is nothing better to put there

    def _checked(self, engine: str, has: Mapping[str, Listed]) -> Listed:
        """For a line with a host name, as older releases wrote it."""
        try:
            return replace(has[engine], server=self._server(engine, has))
        except ServingError:
            return Listed(UNRESOLVED, healthy=False)

    def _write(self, has: Mapping[str, Listed]) -> None:
        """Beside it, then in its place: whoever reads it finds the old or the new."""
        lines = [
            f"    server {has[one].server}{'' if has[one].healthy else ' down'};  # {one}"
            for one in sorted(has)
        ]
        head = ["# Berth writes this file.", f"upstream {self.upstream} {{"]
        text = "\n".join([*head, *(lines or [NOBODY]), "}", ""])
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

    def _tell(self) -> None:
        if not self.reload:
            return
        name = self.reload[0]
        try:
            done = subprocess.run(self.reload, capture_output=True, timeout=RELOAD_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            said = f"{name} did not end within {RELOAD_SECONDS:g} s"
            raise ServingError(Trouble.TIMEOUT, str(self.path), said) from None
        if done.returncode:
            told = readable(done.stdout + done.stderr)[:200]
            said = f"{name} answered {done.returncode}: {told}"
            raise ServingError(Trouble.REFUSED, str(self.path), said)


def _require_plain(engine: str) -> None:
    try:
        normalised(engine)
    except BadAddress as error:
        raise ServingError(Trouble.FORBIDDEN, engine, str(error)) from None
    if engine != "".join(engine.split()):
        raise ServingError(Trouble.FORBIDDEN, engine, "an address has no spaces")
    if urlsplit(engine).path:
        said = "a static list takes machines and ports, no paths"
        raise ServingError(Trouble.UNSUPPORTED, engine, said)


def _server_at(address: str, engine: str) -> str:
    """As nginx names it; how to speak to it stands beside the upstream."""
    parts = urlsplit(engine)
    host, port = ipaddress.ip_address(address), parts.port or PORTS[parts.scheme]
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


def _is_checked(server: str) -> bool:
    """Whether this is an IP address with a port; a host name is not."""
    try:
        ipaddress.ip_address(server.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return server != UNRESOLVED
