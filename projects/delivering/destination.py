"""Resolve webhook URLs and reject internal addresses.

Users choose the URLs, so the URLs must not give them access to this server, its network or cloud metadata
services. A host name is resolved once, and only the validated address is contacted.
"""

import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NOT_PUBLIC = "which is not a public address"
FORBIDDEN_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32", "0.0.0.0/8", "::/128",
        "fec0::/10",
    )
)  # fmt: skip
# Gateways translate addresses of this network to IPv4 addresses that depend on the gateway's settings.
TRANSLATED_NETWORK = ipaddress.ip_network("64:ff9b:1::/48")
# IPv6 networks whose addresses contain an IPv4 address in the last 32 bits.
# Gateways or the operating system translate these addresses to IPv4.
IPV4_EMBEDDING_NETWORKS = tuple(
    ipaddress.IPv6Network(network) for network in ("::ffff:0:0/96", "64:ff9b::/96", "::/96")
)


class ForbiddenAddress(Exception):
    """Raised if connections to the address are forbidden."""


@dataclass(frozen=True, slots=True)
class Destination:
    secure: bool
    host: str
    port: int
    path: str
    address: str  # resolved address to connect to


def resolve_destination(url: str, allowed: Collection[str]) -> Destination:
    """Resolve the host of a URL and validate its addresses.

    `allowed` lists private networks that may be contacted. Raises ForbiddenAddress if an address is not
    allowed, or OSError if the name does not resolve.
    """
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    host = parts.hostname or ""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    networks = [ipaddress.ip_network(network, strict=False) for network in allowed]
    try:
        addresses = [entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except UnicodeError:
        raise ForbiddenAddress(f"{host} is not a valid host name") from None
    for address in addresses:
        if (reason := find_rejection(ipaddress.ip_address(str(address).split("%")[0]), networks)) is not None:
            raise ForbiddenAddress(describe_rejection(host, str(address), reason))
    return Destination(secure, host, port, path, str(addresses[0]))


def find_rejection_without_lookup(url: str, allowed: Collection[str]) -> str | None:
    """Return why requests to the URL are forbidden, or None if they may be allowed.

    Only IP addresses and this machine's names are checked now. Other host names are checked on delivery.
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        if not _is_ip_literal(host) and host.split(".")[-1] != "localhost":
            return None
        resolve_destination(url, allowed)
    except ForbiddenAddress as rejected:
        return str(rejected)
    except OSError:
        return None
    return None


def _is_ip_literal(host: str) -> bool:
    """Return whether the host is an IP address in any notation that resolvers accept, such as 2130706433."""
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def describe_rejection(host: str, address: str, reason: str) -> str:
    """Return a clause that combines the host, its address and a reason from `find_rejection`."""
    if host.strip("[]") == address:
        return f"{host} {reason.removeprefix('which ')}"
    return f"{host} resolves to {address}, {reason}"


def find_rejection(
    address: Address, allowed: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network]
) -> str | None:
    """Return why connections to the address are forbidden, or None if they are allowed."""
    target = embedded_ipv4(address)
    if any(target in network for network in FORBIDDEN_NETWORKS):
        return "which is never allowed"
    if any(target in network for network in allowed):
        return None
    if target.is_loopback:
        return "which is the Berth server itself"
    is_public = target.is_global and not target.is_multicast and target not in TRANSLATED_NETWORK
    return None if is_public else NOT_PUBLIC


def embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds, or else the address itself."""
    if isinstance(address, ipaddress.IPv6Address) and int(address) > 1:
        if any(address in network for network in IPV4_EMBEDDING_NETWORKS):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.sixtofour or address
    return address
