"""Normalize engine addresses and refuse those Berth must not call.

People name engines by URL, and Berth then talks to them by itself: it must not be made to talk to itself, to
its own machine, or to the cloud's metadata. A name is looked up for each call, and that address is called.
"""

import ipaddress
import re
import socket
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from projects.delivering.destination import (
    NOT_PUBLIC,
    Address,
    Destination,
    Refused,
    inner,
    refusal,
)

LONGEST = 400
PORTS = {"http": 80, "https": 443}
NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
# The system takes 0x7f.1 for 127.0.0.1, so such names are none.
LIKE_A_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*")
PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
THIS_MACHINE = ("127.0.0.0/8", "::1/128")


class BadAddress(ValueError):
    """This text is no address of an engine; the message says why."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom Berth may call as an engine or a router.

    `networks`: allowed beyond public ones; this machine only where its loopback is among them. `own_ports`:
    on this machine Berth itself answers there, and is never called. Link-local and metadata never are either.
    """

    networks: tuple[str, ...] = ()
    own_ports: frozenset[int] = frozenset()

    @property
    def includes_this_machine(self) -> bool:
        loopback = ipaddress.ip_address("127.0.0.1")
        return any(loopback in ipaddress.ip_network(network, strict=False) for network in self.networks)


def normalised(url: str) -> str:
    """Two ways of writing one address become one. Raises BadAddress."""
    text = url.strip()
    if len(text) > LONGEST or not text.isascii() or not text.isprintable():
        raise BadAddress(f"an address is printable ASCII of at most {LONGEST} characters")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadAddress(str(error)) from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise BadAddress("an address begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise BadAddress("an address holds no user and no password")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise BadAddress("an address ends with its path")
    if port == 0:
        raise BadAddress("a port is a number from 1 to 65535")
    host, path = _host(parts.hostname or ""), parts.path.rstrip("/")
    if not PATH.fullmatch(path) or ".." in path.split("/") or "." in path.split("/"):
        raise BadAddress("a path is plain words between slashes")
    shown_port = "" if port in {None, PORTS[scheme]} else f":{port}"
    return f"{scheme}://{host}{shown_port}{path}"


def destination(base: str, path: str, reach: Reach) -> Destination:
    """Where a call to `path` at this address goes. Raises Refused, OSError."""
    parts = urlsplit(base)
    found = checked_addresses(base, reach)
    return Destination(
        parts.scheme == "https", parts.hostname or "", _port(parts), parts.path + path, found[0]
    )


def checked_addresses(base: str, reach: Reach) -> tuple[str, ...]:
    """The IP addresses that the host of this address resolves to now. Raises Refused, OSError.

    Each of them must be one that may be called: Berth cannot choose which of them answers.
    """
    parts = urlsplit(base)
    host, port = parts.hostname or "", _port(parts)
    try:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except UnicodeError:
        raise Refused(f"{host} is no name of a machine") from None
    networks = [ipaddress.ip_network(network, strict=False) for network in reach.networks]
    for address in found:
        why = _refusal(ipaddress.ip_address(address.partition("%")[0]), port, reach, networks)
        if why is not None:
            raise Refused(f"{host} leads to {address}, {why}")
    return tuple(dict.fromkeys(found))


def _port(parts: SplitResult) -> int:
    return parts.port or PORTS[parts.scheme]


def _refusal(
    address: Address,
    port: int,
    reach: Reach,
    networks: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> str | None:
    if (why := refusal(address, networks)) is not None:
        return f"{why} and is in none of BERTH_SERVICE_NETWORKS" if why == NOT_PUBLIC else why
    if not is_here(address):
        return None
    if port in reach.own_ports:
        return "where Berth itself answers"
    return None if reach.includes_this_machine else "which is this machine itself"


def is_here(address: Address) -> bool:
    """Whether it is one of this machine's own: to those alone a socket can be bound."""
    address = inner(address)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return True
    return False


def _host(host: str) -> str:
    plain = host.lower().removesuffix(".")
    if "%" in plain:
        raise BadAddress("an address names no interface of this machine")
    try:
        return _in_brackets(str(ipaddress.ip_address(plain)))
    except ValueError:
        if NAME.fullmatch(plain) and not LIKE_A_NUMBER.fullmatch(plain) and len(plain) <= 253:
            return plain
        raise BadAddress(f"{plain[:80]!r} is no name and no address of a machine") from None


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
