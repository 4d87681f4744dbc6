"""Proxy requests for port hosts to pods; pass all other requests to Berth."""

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
from projects.connections.watch import WATCH
from projects.delivering.destination import NEVER, embedded_ipv4
from projects.services.workloads.ports import NoVisit, PortAddress, PortClosed
from projects.serving.addresses import is_local
from projects.visits.error_pages import (
    CROSS_SITE,
    CROWDED,
    LINK_NEEDED,
    NO_DATABASE,
    NOT_FOUND,
    NOT_LISTENING,
    page,
)
from projects.visits.headers import Headers, cookie_in, header_value, is_cross_site, to_pod
from projects.visits.origins import Origins
from projects.visits.passes import Passes, digest_of
from projects.visits.requests import NoResponse, Receive, Scope, Send, forward, transport_pool
from projects.visits.sockets import proxy_socket

RESERVED = "/.berth/"
OPEN = "/.berth/open/"
LOOK_AGAIN_SECONDS = 30.0  # for visits that end without a change of rights, such as at the end of a run
WATCHED_AFTER_SECONDS = 0.5  # most responses are complete earlier
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"})
REFUSED_SOCKET = 4403

App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass
class PortProxy:
    """`reserved_cookies` are never sent to or set by pods. `own_ports` are Berth's ports on this machine."""

    berth: App
    origins: Origins
    reserved_cookies: tuple[str, ...]
    own_ports: Collection[int] = ()
    passes: Passes = field(default_factory=Passes)
    transport: httpx.AsyncHTTPTransport = field(default_factory=transport_pool)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        port = None
        if scope["type"] in ("http", "websocket"):
            port = self.origins.port_of_host(header_value(scope["headers"], b"host"))
        if port is None:
            await self.berth(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send, port)
        else:
            try:
                await self._request(scope, receive, send, port)
            # the pod was not contacted yet: responses need no database
            except (InterfaceError, OperationalError):
                await page(send, NO_DATABASE)

    @property
    def cookie(self) -> str:
        return "__Host-berth_port" if self.origins.is_secure else "berth_port"

    @property
    def hidden_cookies(self) -> tuple[str, ...]:
        return (self.cookie, *self.reserved_cookies)

    async def _request(self, scope: Scope, receive: Receive, send: Send, port: tuple[uuid.UUID, str]) -> None:
        path, method = scope["path"], scope["method"]
        if path.startswith(OPEN) and method == "GET":
            await self._open(path.removeprefix(OPEN), send, port)
            return
        if path.startswith(RESERVED) or method not in METHODS:
            await page(send, NOT_FOUND)
            return
        if self._is_cross_site(scope, port):
            await page(send, CROSS_SITE)
            return
        has_started = False

        async def tracked_send(message: Any) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            address = await self._address(scope, port)
            lasted = await self._run_visit(scope, port, address, lambda: forward(
                self.transport, scope, receive, tracked_send, address=address,
                headers=self._headers(scope, address), own_cookies=self.hidden_cookies,
            ))  # fmt: skip
            if not lasted and not has_started:
                raise NoVisit
        except NoVisit:
            await page(send, LINK_NEEDED)
        except (PortClosed, NoResponse):
            await page(send, NOT_LISTENING)
        except _TooManyRequests:
            await page(send, CROWDED)

    async def _socket(self, scope: Scope, receive: Receive, send: Send, port: tuple[uuid.UUID, str]) -> None:
        try:
            if self._is_cross_site(scope, port):
                raise NoVisit
            address = await self._address(scope, port)
            if not await self._run_visit(scope, port, address, lambda: proxy_socket(
                scope, receive, send, address=address, headers=self._headers(scope, address)
            )):  # fmt: skip
                raise NoVisit
        except (NoVisit, PortClosed, NoResponse, _TooManyRequests):
            await send({"type": "websocket.close", "code": REFUSED_SOCKET})

    async def _open(self, secret: str, send: Send, port: tuple[uuid.UUID, str]) -> None:
        """Exchange the secret in the URL for a cookie, and redirect to keep the secret out of referrers."""
        try:
            visit = await self.passes.exchange(secret, port)
        except NoVisit:
            await page(send, LINK_NEEDED)
            return
        secure = "; Secure" if self.origins.is_secure else ""
        cookie = f"{self.cookie}={visit}; Path=/; HttpOnly; SameSite=Lax{secure}"
        headers = [
            (b"location", b"/"), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"), (b"content-length", b"0"),
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _address(self, scope: Scope, port: tuple[uuid.UUID, str]) -> PortAddress:
        address = await self.passes.address(cookie_in(scope["headers"], self.cookie), port)
        if not is_allowed(address, self.own_ports):
            raise PortClosed
        return address

    async def _run_visit(
        self,
        scope: Scope,
        port: tuple[uuid.UUID, str],
        address: PortAddress,
        visit: Callable[[], Awaitable[None]],
    ) -> bool:
        """Run a request while the visit lasts. Return False if the visit ended before the request."""
        if not self.passes.enter(port):
            raise _TooManyRequests
        visiting = asyncio.ensure_future(visit())
        ended: asyncio.Task[None] | None = None
        try:
            await asyncio.wait({visiting}, timeout=WATCHED_AFTER_SECONDS)
            if not visiting.done():
                cookie = cookie_in(scope["headers"], self.cookie)
                ended = asyncio.create_task(self._wait_for_end(cookie, port, address))
                await asyncio.wait({visiting, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.passes.leave(port)
            if ended is not None:
                ended.cancel()
                with suppress(asyncio.CancelledError, OperationalError, InterfaceError):
                    await ended
            if not visiting.done():
                visiting.cancel()
                with suppress(asyncio.CancelledError, NoResponse):
                    await visiting
        if not visiting.cancelled():
            visiting.result()
        return not visiting.cancelled()

    async def _wait_for_end(self, cookie: str, port: tuple[uuid.UUID, str], address: PortAddress) -> None:
        """Return once the visit has ended, for example because the session or the run has ended."""
        opened = WATCH.open(Credential(visit=digest_of(cookie)))
        try:
            while await self.passes.is_valid(cookie, port, address):
                await opened.changed(LOOK_AGAIN_SECONDS)
        finally:
            WATCH.close(opened)

    def _is_cross_site(self, scope: Scope, port: tuple[uuid.UUID, str]) -> bool:
        return is_cross_site(
            scope["headers"],
            own=self.origins.of(*port),
            method=scope.get("method", "GET"),
            is_socket=scope["type"] == "websocket",
        )

    def _headers(self, scope: Scope, address: PortAddress) -> Headers:
        return to_pod(
            scope["headers"],
            own_cookies=self.hidden_cookies,
            secret=address.secret,
            scheme=self.origins.scheme,
        )


class _TooManyRequests(Exception):
    """Too many concurrent requests and sockets on one port."""


def is_allowed(address: PortAddress, own_ports: Collection[int]) -> bool:
    """Return False for cloud metadata addresses and for Berth's own ports."""
    host = ipaddress.ip_address(address.host)
    if any(embedded_ipv4(host) in network for network in NEVER):
        return False
    return address.port not in own_ports or not is_local(host)
