"""Proxy requests for port hosts to pods, and pass all other requests to Berth."""

import asyncio
import ipaddress
import uuid
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from django.db import InterfaceError, OperationalError

from projects.connections.credentials import Credential
from projects.connections.watch import WATCHER
from projects.delivering.destination import FORBIDDEN_NETWORKS, embedded_ipv4
from projects.port_proxy.error_pages import (
    CROSS_SITE,
    LINK_NEEDED,
    NO_DATABASE,
    NOT_FOUND,
    NOT_LISTENING,
    TOO_MANY_REQUESTS,
    send_page,
)
from projects.port_proxy.headers import (
    Headers,
    find_cookie,
    find_header,
    is_cross_site,
    request_headers_for_pod,
)
from projects.port_proxy.origins import Origins
from projects.port_proxy.requests import NoResponse, Receive, Scope, Send, forward
from projects.port_proxy.sessions import PortSessionCache, hash_cookie
from projects.port_proxy.sockets import proxy_socket
from projects.port_proxy.streams import OpenPort, create_transport
from projects.services.workloads.ports import InvalidPortSession, PortAddress, PortClosed
from projects.serving.addresses import is_local

RESERVED_PREFIX = "/.berth/"
OPEN_PREFIX = "/.berth/open/"
# Interval for rechecking open connections, because a port session can end without a permission change.
RECHECK_SECONDS = 30.0
WATCH_DELAY_SECONDS = 0.5  # the watch starts after this delay, within which most responses complete
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"})
FORBIDDEN_CLOSE_CODE = 4403

App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass
class PortProxy:
    """ASGI application that proxies requests for port hosts to pods.

    `reserved_cookies` are the names of Berth's own cookies, which pods neither receive nor set. `own_ports`
    are Berth's ports on this machine. `open_port` connects to a pod through its cluster.
    """

    berth: App
    origins: Origins
    reserved_cookies: tuple[str, ...]
    own_ports: Collection[int] = ()
    sessions: PortSessionCache = field(default_factory=PortSessionCache)
    open_port: OpenPort | None = None
    transport: httpx.AsyncHTTPTransport = field(init=False)

    def __post_init__(self) -> None:
        self.transport = create_transport(self.open_port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        port = None
        if scope["type"] in ("http", "websocket"):
            port = self.origins.parse_host(find_header(scope["headers"], b"host"))
        if port is None:
            await self.berth(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._handle_socket(scope, receive, send, port)
        else:
            try:
                await self._handle_request(scope, receive, send, port)
            # These errors occur only before the pod is contacted: forwarding does not use the database.
            except (InterfaceError, OperationalError):
                await send_page(send, NO_DATABASE)

    @property
    def cookie_name(self) -> str:
        return "__Host-berth_port" if self.origins.is_secure else "berth_port"

    @property
    def hidden_cookies(self) -> tuple[str, ...]:
        return (self.cookie_name, *self.reserved_cookies)

    async def _handle_request(
        self, scope: Scope, receive: Receive, send: Send, port: tuple[uuid.UUID, str]
    ) -> None:
        path, method = scope["path"], scope["method"]
        if path.startswith(OPEN_PREFIX) and method == "GET":
            await self._open(path.removeprefix(OPEN_PREFIX), send, port)
            return
        if path.startswith(RESERVED_PREFIX) or method not in METHODS:
            await send_page(send, NOT_FOUND)
            return
        if self._is_cross_site(scope, port):
            await send_page(send, CROSS_SITE)
            return
        has_started = False

        async def tracked_send(message: Any) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            address = await self._address(scope, port)
            session_lasted = await self._run_in_session(scope, port, address, lambda: forward(
                self.transport, scope, receive, tracked_send, address=address,
                headers=self._headers(scope, address), own_cookies=self.hidden_cookies,
            ))  # fmt: skip
            if not session_lasted and not has_started:
                raise InvalidPortSession
        except InvalidPortSession:
            await send_page(send, LINK_NEEDED)
        except (PortClosed, NoResponse):
            await send_page(send, NOT_LISTENING)
        except _TooManyRequests:
            await send_page(send, TOO_MANY_REQUESTS)

    async def _handle_socket(
        self, scope: Scope, receive: Receive, send: Send, port: tuple[uuid.UUID, str]
    ) -> None:
        try:
            if self._is_cross_site(scope, port):
                raise InvalidPortSession
            address = await self._address(scope, port)
            if not await self._run_in_session(scope, port, address, lambda: proxy_socket(
                scope, receive, send, address=address, headers=self._headers(scope, address),
                open_port=self.open_port,
            )):  # fmt: skip
                raise InvalidPortSession
        except (InvalidPortSession, PortClosed, NoResponse, _TooManyRequests):
            await send({"type": "websocket.close", "code": FORBIDDEN_CLOSE_CODE})

    async def _open(self, secret: str, send: Send, port: tuple[uuid.UUID, str]) -> None:
        """Exchange the URL's secret for a cookie, then redirect to keep the secret out of referrers."""
        try:
            session_secret = await self.sessions.exchange(secret, port)
        except InvalidPortSession:
            await send_page(send, LINK_NEEDED)
            return
        secure = "; Secure" if self.origins.is_secure else ""
        cookie = f"{self.cookie_name}={session_secret}; Path=/; HttpOnly; SameSite=Lax{secure}"
        headers = [
            (b"location", b"/"), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"), (b"content-length", b"0"),
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _address(self, scope: Scope, port: tuple[uuid.UUID, str]) -> PortAddress:
        address = await self.sessions.address(find_cookie(scope["headers"], self.cookie_name), port)
        if not is_allowed(address, self.own_ports):
            raise PortClosed
        return address

    async def _run_in_session(
        self,
        scope: Scope,
        port: tuple[uuid.UUID, str],
        address: PortAddress,
        handle: Callable[[], Awaitable[None]],
    ) -> bool:
        """Handle a request until it ends or the port session ends.

        Return False if the session ended first.
        """
        if not self.sessions.enter(port):
            raise _TooManyRequests
        handling = asyncio.ensure_future(handle())
        ended: asyncio.Task[None] | None = None
        try:
            await asyncio.wait({handling}, timeout=WATCH_DELAY_SECONDS)
            if not handling.done():
                cookie = find_cookie(scope["headers"], self.cookie_name)
                ended = asyncio.create_task(self._wait_for_end(cookie, port, address))
                await asyncio.wait({handling, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.sessions.leave(port)
            if ended is not None:
                ended.cancel()
                with suppress(asyncio.CancelledError, OperationalError, InterfaceError):
                    await ended
            if not handling.done():
                handling.cancel()
                with suppress(asyncio.CancelledError, NoResponse):
                    await handling
        if not handling.cancelled():
            handling.result()
        return not handling.cancelled()

    async def _wait_for_end(self, cookie: str, port: tuple[uuid.UUID, str], address: PortAddress) -> None:
        opened = WATCHER.open(Credential(port_session=hash_cookie(cookie)))
        try:
            while await self.sessions.is_valid(cookie, port, address):
                await opened.wait_for_change(RECHECK_SECONDS)
        finally:
            WATCHER.close(opened)

    def _is_cross_site(self, scope: Scope, port: tuple[uuid.UUID, str]) -> bool:
        return is_cross_site(
            scope["headers"],
            own_origin=self.origins.origin_for(*port),
            method=scope.get("method", "GET"),
            is_socket=scope["type"] == "websocket",
        )

    def _headers(self, scope: Scope, address: PortAddress) -> Headers:
        return request_headers_for_pod(
            scope["headers"],
            own_cookies=self.hidden_cookies,
            secret=address.secret,
            scheme=self.origins.scheme,
        )


class _TooManyRequests(Exception):
    """Raised if a port has too many concurrent requests and WebSockets."""


def is_allowed(address: PortAddress, own_ports: Collection[int]) -> bool:
    """Return whether Berth may call the address.

    Tunnels are always allowed, because they lead only to their pod.
    """
    if address.tunnel_pod:
        return True
    host = ipaddress.ip_address(address.host)
    if any(embedded_ipv4(host) in network for network in FORBIDDEN_NETWORKS):
        return False
    return address.port not in own_ports or not is_local(host)
