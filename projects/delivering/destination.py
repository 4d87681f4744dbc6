"""Here we find out where a web address leads, and refuse what no stranger may make us call.

A server that posts to addresses that people wrote down must not be made to talk to itself, to its
neighbours, or to the cloud's metadata. The name is looked up once, and that very address is called.
"""

import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NEVER = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32", "0.0.0.0/8", "::/128",
    )
)  # fmt: skip


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
    found = [entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in found:
        if (why := refusal(ipaddress.ip_address(str(address).split("%")[0]), networks)) is not None:
            raise Refused(f"{host} leads to {address}, {why}")
    return Destination(secure, host, port, path, str(found[0]))


def refusal(
    address: Address, allowed: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network]
) -> str | None:
    """Why this address must not be called; None for one that may."""
    inner = getattr(address, "ipv4_mapped", None) or address
    if any(inner in network for network in NEVER):
        return "which is never called"
    if any(inner in network for network in allowed):
        return None
    if inner.is_loopback:
        return "which is this machine itself"
    return None if inner.is_global and not inner.is_multicast else "which is no public address"
