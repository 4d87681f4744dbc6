"""Normalize addresses of inference engines, and reject addresses that Berth must not call.

Users choose the URLs, so none may lead to Berth itself, its machine or a cloud metadata service. Only the
validated address of a host name is called.
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
    ForbiddenAddress,
    describe_rejection,
    embedded_ipv4,
    find_rejection,
)

MAX_LENGTH = 400
PORTS = {"http": 80, "https": 443}
NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
# The resolver accepts names such as 0x7f.1 for 127.0.0.1, so such names are rejected.
NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*")
PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
THIS_MACHINE = ("127.0.0.0/8", "::1/128")


class InvalidAddress(ValueError):
    """Raised for text that is not a valid address of an inference engine."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Addresses that Berth may call as inference engines or routers.

    `networks` are allowed in addition to public addresses. `own_ports` are Berth's ports on this machine,
    which are never allowed.
    """

    networks: tuple[str, ...] = ()
    own_ports: frozenset[int] = frozenset()

    @property
    def includes_this_machine(self) -> bool:
        loopback = ipaddress.ip_address("127.0.0.1")
        return any(loopback in ipaddress.ip_network(network, strict=False) for network in self.networks)


def normalize(url: str) -> str:
    """Return the URL in canonical form. Raises InvalidAddress."""
    text = url.strip()
    if len(text) > MAX_LENGTH or not text.isascii() or not text.isprintable():
        raise InvalidAddress(f"an address must have at most {MAX_LENGTH} characters, all printable ASCII")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidAddress(str(error)) from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise InvalidAddress("an address must start with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise InvalidAddress("an address must not contain a username or password")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise InvalidAddress("an address must not contain a query or fragment")
    if port == 0:
        raise InvalidAddress("a port must be between 1 and 65535")
    host, path = _normalize_host(parts.hostname or ""), parts.path.rstrip("/")
    if not PATH.fullmatch(path) or ".." in path.split("/") or "." in path.split("/"):
        raise InvalidAddress("a path may contain only letters, digits and ._~- between slashes")
    port_suffix = "" if port in {None, PORTS[scheme]} else f":{port}"
    return f"{scheme}://{host}{port_suffix}{path}"


def resolve_destination(base: str, path: str, reach: AddressPolicy) -> Destination:
    """Resolve and validate the destination of a call to `path`. Raises ForbiddenAddress or OSError."""
    parts = urlsplit(base)
    addresses = resolve_addresses(base, reach)
    return Destination(
        parts.scheme == "https",
        parts.hostname or "",
        _port_or_default(parts),
        parts.path + path,
        addresses[0],
    )


def resolve_addresses(base: str, reach: AddressPolicy) -> tuple[str, ...]:
    """Return the host's IP addresses. Raises OSError, or ForbiddenAddress if any of them is not allowed."""
    parts = urlsplit(base)
    host, port = parts.hostname or "", _port_or_default(parts)
    try:
        addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except UnicodeError:
        raise ForbiddenAddress(f"{host} is not a valid host name") from None
    networks = [ipaddress.ip_network(network, strict=False) for network in reach.networks]
    # All addresses must be allowed, because Berth cannot choose the address of the connection.
    for address in addresses:
        reason = _rejection_reason(ipaddress.ip_address(address.partition("%")[0]), port, reach, networks)
        if reason is not None:
            raise ForbiddenAddress(describe_rejection(host, address, reason))
    return tuple(dict.fromkeys(addresses))


def _port_or_default(parts: SplitResult) -> int:
    return parts.port or PORTS[parts.scheme]


def _rejection_reason(
    address: Address,
    port: int,
    reach: AddressPolicy,
    networks: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> str | None:
    if (reason := find_rejection(address, networks)) is not None:
        return f"{reason} and not in BERTH_SERVICE_NETWORKS" if reason == NOT_PUBLIC else reason
    if not is_local(address):
        return None
    if port in reach.own_ports:
        return "which is this machine, and the port is used by Berth itself"
    return None if reach.includes_this_machine else "which is the Berth server itself"


def is_local(address: Address) -> bool:
    """Return whether the address belongs to this machine, so that a socket can be bound to it."""
    address = embedded_ipv4(address)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return True
    return False


def _normalize_host(host: str) -> str:
    name = host.lower().removesuffix(".")
    if "%" in name:
        raise InvalidAddress("an address must not contain an IPv6 zone ID")
    try:
        return _format_host(str(ipaddress.ip_address(name)))
    except ValueError:
        if NAME.fullmatch(name) and not NUMERIC.fullmatch(name) and len(name) <= 253:
            return name
        raise InvalidAddress(f"{name[:80]!r} is neither a host name nor an IP address") from None


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
