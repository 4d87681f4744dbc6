"""Open connections to pod ports, directly or through the pod's cluster."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx

from projects.port_proxy.sessions import query_in_thread
from projects.services.workloads.ports import PortAddress

BLOCK = 64 * 1024
TUNNEL_SUFFIX = ".tunnel.invalid"  # reserved by RFC 2606, so it is never the name of a host

# Opens a socket to a port of the pod with the given ID. Raises OSError, and blocks while it connects.
OpenPort = Callable[[str, int], socket.socket]


class TunnelBackend(httpcore.AsyncNetworkBackend):
    """Network backend that connects to pods through `open_port`, and to all other hosts directly."""

    def __init__(self, open_port: OpenPort, direct: httpcore.AsyncNetworkBackend) -> None:
        self._open_port, self._direct = open_port, direct

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:  # fmt: skip
        if not host.endswith(TUNNEL_SUFFIX):
            return await self._direct.connect_tcp(host, port, timeout, local_address, socket_options)
        try:
            connection = await connect_through(self._open_port, host.removesuffix(TUNNEL_SUFFIX), port)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return _SocketStream(*await asyncio.open_connection(sock=connection))


class _SocketStream(httpcore.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                return await self._reader.read(min(max_bytes, BLOCK))
        except TimeoutError as error:
            raise httpcore.ReadTimeout from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError as error:
            raise httpcore.WriteTimeout from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self._writer.close()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("connections to pods do not use TLS")

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._reader.at_eof()
        return self._writer.get_extra_info(info)


def create_transport(open_port: OpenPort | None = None) -> httpx.AsyncHTTPTransport:
    """Return an HTTP connection pool for pods, without cookies, redirects or proxies."""
    transport = httpx.AsyncHTTPTransport(trust_env=False)
    direct = httpcore.AnyIOBackend()
    transport._pool = httpcore.AsyncConnectionPool(
        max_connections=1024, max_keepalive_connections=64, keepalive_expiry=5.0,
        network_backend=TunnelBackend(open_port, direct) if open_port is not None else direct,
    )  # fmt: skip
    return transport


def url_host(address: PortAddress) -> str:
    """Return the host and port for a request URL."""
    if address.tunnel_pod:
        return f"{address.tunnel_pod}{TUNNEL_SUFFIX}:{address.port}"
    return address.netloc


async def connect_through(open_port: OpenPort, pod_id: str, port: int) -> socket.socket:
    """Connect to a pod's port through its cluster. Raises OSError."""
    connection = await query_in_thread(lambda: open_port(pod_id, port))
    connection.setblocking(False)
    return connection
