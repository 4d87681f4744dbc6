"""Resolve webhook addresses and refuse internal ones.

A server that posts to addresses that people wrote down must not be made to talk to itself, to its
neighbours, or to the cloud's metadata. The name is looked up once, and that very address is called.
"""

import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NOT_PUBLIC = "which is no public address"
NEVER = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32", "0.0.0.0/8", "::/128",
        "fec0::/10",
    )
)  # fmt: skip
# Networks whose last 32 bits are an IPv4 address to which a gateway, or the system itself, hands on.
CARRIERS = tuple(ipaddress.IPv6Network(network) for network in ("::ffff:0:0/96", "64:ff9b::/96", "::/96"))


class Refused(Exception):
    """This address is not called, now or later."""


@dataclass(frozen=True, slots=True)
class Destination:
    secure: bool
    host: str
    port: int
    path: str
    address: str  # to which we connect, whatever the name leads to by then


def destination(url: str, allowed: Collection[str]) -> Destination:
    """`allowed`: networks that may be called though they are not public. Raises Refused, OSError."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    host = parts.hostname or ""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    networks = [ipaddress.ip_network(network, strict=False) for network in allowed]
    try:
        found = [entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except UnicodeError:
        raise Refused(f"{host} is no name of a machine") from None
    for address in found:
        if (why := refusal(ipaddress.ip_address(str(address).split("%")[0]), networks)) is not None:
            raise Refused(f"{host} leads to {address}, {why}")
    return Destination(secure, host, port, path, str(found[0]))


def refused_at_sight(url: str, allowed: Collection[str]) -> str | None:
    """Why it would not be called, as far as nobody has to be asked; None else.

    A number, or a name of this machine, leads where it says. Other names are looked up when they are called.
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        if not _is_number(host) and host.split(".")[-1] != "localhost":
            return None
        destination(url, allowed)
    except Refused as refused:
        return str(refused)
    except OSError:
        return None
    return None


def _is_number(host: str) -> bool:
    """In any notation that a look-up would take for an address, such as 2130706433."""
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def refusal(
    address: Address, allowed: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network]
) -> str | None:
    """Why this address must not be called; None for one that may."""
    reached = inner(address)
    if any(reached in network for network in NEVER):
        return "which is never called"
    if any(reached in network for network in allowed):
        return None
    if reached.is_loopback:
        return "which is this machine itself"
    return None if reached.is_global and not reached.is_multicast else NOT_PUBLIC


def inner(address: Address) -> Address:
    """The IPv4 address inside, where it carries one; `::` and `::1` are themselves."""
    if isinstance(address, ipaddress.IPv6Address) and int(address) > 1:
        if any(address in network for network in CARRIERS):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.sixtofour or address
    return address
