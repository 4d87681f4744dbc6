"""Send HTTP requests to registries, but only to addresses that Berth may call on behalf of users.

Redirects are not followed.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from projects.delivering.destination import describe_rejection, embedded_ipv4, find_rejection
from projects.serving.addresses import PRIVATE, THIS_MACHINE, is_local
from scheduler.registries.base import RegistryError, RegistryErrorKind

NETWORKS = tuple(ipaddress.ip_network(network) for network in (*PRIVATE, *THIS_MACHINE))


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """Rules for calling registries.

    Registries in `insecure` and on this machine are called over HTTP. `own_ports` are Berth's ports on this
    machine, which are never called.
    """

    insecure: frozenset[str] = frozenset()
    own_ports: frozenset[int] = frozenset()
    seconds: float = 20.0


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class RegistryHttpClient:
    """HTTP client for a single registry lookup."""

    access: RegistryAccess
    tls: ssl.SSLContext

    async def send(self, method: str, url: str, headers: Mapping[str, str], limit: int) -> Response:
        """Send a request, and read at most `limit` bytes. Raises RegistryError, OSError or HTTPError."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        proxy = find_proxy(parts.scheme, host)
        target = httpx.URL(url)
        if proxy is None:
            target = target.copy_with(host=await self._resolve(host, port))
        sent = {**headers, "User-Agent": "berth", "Host": parts.netloc.rpartition("@")[2]}
        async with (
            httpx.AsyncClient(
                verify=self.tls, trust_env=False, timeout=self.access.seconds, proxy=proxy
            ) as http,
            http.stream(method, target, headers=sent, extensions={"sni_hostname": host}) as response,
        ):
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > limit:
                    text = f"{host} responded with more than {limit} bytes."
                    raise RegistryError(RegistryErrorKind.FAILED, text)
            return Response(response.status_code, response.headers, body)

    async def _resolve(self, host: str, port: int) -> str:
        """Resolve a host to an address.

        Raises RegistryError if any of the host's addresses must not be called.
        """
        loop = asyncio.get_running_loop()
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in entries]
        for text in addresses:
            address = ipaddress.ip_address(text.partition("%")[0])
            reason = find_rejection(address, NETWORKS)
            if reason is None and port in self.access.own_ports and is_local(embedded_ipv4(address)):
                reason = "which is this machine, and the port is used by Berth itself"
            if reason is not None:
                message = f"The registry {describe_rejection(host, text, reason)}."
                raise RegistryError(RegistryErrorKind.FORBIDDEN, message)
        return addresses[0]


def find_proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment specifies for the host, or None."""
    if is_loopback(host) or proxy_bypass(host):
        return None
    return getproxies().get(scheme)


def is_loopback(host: str) -> bool:
    """Return whether the host is a name or address of the loopback interface."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
