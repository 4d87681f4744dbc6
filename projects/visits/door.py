"""Admit or refuse requests to port hosts; pass all others to Berth."""

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
from projects.delivering.destination import NEVER, inner
from projects.services.workloads.ports import NotThere, NoVisit, Place
from projects.serving.addresses import is_here
from projects.visits.headers import Headers, cookie_in, first_of, to_pod
from projects.visits.origins import Origins
from projects.visits.passes import Passes, digest_of
from projects.visits.refusals import AGAIN, CROWDED, DARK, STRANGER, WRONG, page
from projects.visits.requests import Receive, Scope, Send, Silent, hand_on, pool
from projects.visits.sockets import join
from projects.visits.strangers import is_a_strangers

RESERVED = "/.berth/"
OPEN = "/.berth/open/"
LOOK_AGAIN_SECONDS = 30.0  # at what no change of the person's rights announces: the run has ended
WATCHED_AFTER_SECONDS = 0.5  # most requests are answered before
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"})
REFUSED_SOCKET = 4403

App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass
class Door:
    """`berths_cookies`: names that no pod ever sees or sets. `own_ports`: of this machine, Berth's own."""

    berth: App
    origins: Origins
    berths_cookies: tuple[str, ...]
    own_ports: Collection[int] = ()
    passes: Passes = field(default_factory=Passes)
    transport: httpx.AsyncHTTPTransport = field(default_factory=pool)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        port = None
        if scope["type"] in ("http", "websocket"):
            port = self.origins.named_by(first_of(scope["headers"], b"host"))
        if port is None:
            await self.berth(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send, port)
        else:
            await self._request(scope, receive, send, port)

    @property
    def cookie(self) -> str:
        return "__Host-berth_port" if self.origins.is_secure else "berth_port"

    @property
    def never_seen(self) -> tuple[str, ...]:
        return (self.cookie, *self.berths_cookies)

    async def _request(self, scope: Scope, receive: Receive, send: Send, port: tuple[uuid.UUID, str]) -> None:
        path, method = scope["path"], scope["method"]
        if path.startswith(OPEN) and method == "GET":
            await self._open(path.removeprefix(OPEN), send, port)
            return
        if path.startswith(RESERVED) or method not in METHODS:
            await page(send, WRONG)
            return
        if self._is_a_strangers(scope, port):
            await page(send, STRANGER)
            return
        try:
            place = await self._place(scope, port)
            await self._inside(scope, port, place, lambda: hand_on(
                self.transport, scope, receive, send, place=place, headers=self._headers(scope, place),
                own_cookies=self.never_seen,
            ))  # fmt: skip
        except NoVisit:
            await page(send, AGAIN)
        except (NotThere, Silent):
            await page(send, DARK)
        except _Crowded:
            await page(send, CROWDED)

    async def _socket(self, scope: Scope, receive: Receive, send: Send, port: tuple[uuid.UUID, str]) -> None:
        try:
            if self._is_a_strangers(scope, port):
                raise NoVisit
            place = await self._place(scope, port)
            if not await self._inside(scope, port, place, lambda: join(
                scope, receive, send, place=place, headers=self._headers(scope, place)
            )):  # fmt: skip
                raise NoVisit
        except (NoVisit, NotThere, Silent, _Crowded):
            await send({"type": "websocket.close", "code": REFUSED_SOCKET})

    async def _open(self, secret: str, send: Send, port: tuple[uuid.UUID, str]) -> None:
        """The secret leaves the address at once, and no page ever sends it on as where one came from."""
        try:
            visit = await self.passes.exchange(secret, port)
        except NoVisit:
            await page(send, AGAIN)
            return
        secure = "; Secure" if self.origins.is_secure else ""
        cookie = f"{self.cookie}={visit}; Path=/; HttpOnly; SameSite=Lax{secure}"
        headers = [
            (b"location", b"/"), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"), (b"content-length", b"0"),
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _place(self, scope: Scope, port: tuple[uuid.UUID, str]) -> Place:
        place = await self.passes.place(cookie_in(scope["headers"], self.cookie), port)
        if not may_be_called(place, self.own_ports):
            raise NotThere
        return place

    async def _inside(
        self, scope: Scope, port: tuple[uuid.UUID, str], place: Place, visit: Callable[[], Awaitable[None]]
    ) -> bool:
        """A visit that has ended is cut off (False), however long its answer or socket would go on."""
        if not self.passes.enter(port):
            raise _Crowded
        visiting = asyncio.ensure_future(visit())
        ended: asyncio.Task[None] | None = None
        try:
            await asyncio.wait({visiting}, timeout=WATCHED_AFTER_SECONDS)
            if not visiting.done():
                cookie = cookie_in(scope["headers"], self.cookie)
                ended = asyncio.create_task(self._ended(cookie, port, place))
                await asyncio.wait({visiting, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.passes.leave(port)
            if ended is not None:
                ended.cancel()
                with suppress(asyncio.CancelledError, OperationalError, InterfaceError):
                    await ended
            if not visiting.done():
                visiting.cancel()
                with suppress(asyncio.CancelledError, Silent):
                    await visiting
        if not visiting.cancelled():
            visiting.result()
        return not visiting.cancelled()

    async def _ended(self, cookie: str, port: tuple[uuid.UUID, str], place: Place) -> None:
        """Return when the visit has ended: with the session's end, the person's right, the run, its time."""
        opened = WATCH.open(Credential(visit=digest_of(cookie)))
        try:
            while await self.passes.still(cookie, port, place):
                await opened.changed(LOOK_AGAIN_SECONDS)
        finally:
            WATCH.close(opened)

    def _is_a_strangers(self, scope: Scope, port: tuple[uuid.UUID, str]) -> bool:
        return is_a_strangers(
            scope["headers"],
            own=self.origins.of(*port),
            method=scope.get("method", "GET"),
            is_socket=scope["type"] == "websocket",
        )

    def _headers(self, scope: Scope, place: Place) -> Headers:
        return to_pod(
            scope["headers"], own_cookies=self.never_seen, secret=place.secret, scheme=self.origins.scheme
        )


class _Crowded(Exception):
    """Too many requests and sockets of one port at once."""


def may_be_called(place: Place, own_ports: Collection[int]) -> bool:
    """Never the cloud's metadata, whatever a machine says its address is, and never Berth itself."""
    address = ipaddress.ip_address(place.host)
    if any(inner(address) in network for network in NEVER):
        return False
    return place.port not in own_ports or not is_here(address)
