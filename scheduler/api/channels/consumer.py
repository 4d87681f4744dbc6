"""Connect a user to a command in a pod.

Each binary message is one frame: its kind and its payload (`pools.runtimes.shim.channels.frames`). This
process only checks and forwards frames. The relay beside the pod enforces the limits of the protocol.
"""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from channels.db import database_sync_to_async
from django.conf import settings
from django.utils import timezone

from berth.core.errors import BerthError, RateLimited
from berth.server.api.rate_limits import spend
from pools.runtimes.shim.channels.frames import (
    FROM_CLIENT,
    FROM_POD,
    PAYLOAD_MAX,
    STATUS,
    BrokenFrames,
    FrameReader,
    encode_frame,
)
from projects.actor import Actor
from projects.connections.credentials import Credential
from projects.connections.sockets import SIGNED_OUT, TOO_MANY_CONNECTIONS, SignedInConsumer
from projects.services.people import tokens
from projects.services.workloads.channels import record_closed, record_opened
from projects.visits.headers import Headers, find_header
from scheduler.api.channels.pods import ChannelPod, find_channel_pod

log = logging.getLogger(__name__)

PROTOCOL_ERROR = 4422
REFUSED = 4000  # the close code is this plus the HTTP status of the refusal
READ_BYTES = 64 * 1024
POD_LOST = "The pod has ended, or its node is not responding."
MESSAGES = {
    SIGNED_OUT: "You are signed out, or the token is unknown, expired or revoked.",
    TOO_MANY_CONNECTIONS: "You have too many open connections. Close some first.",
}


class ChannelConsumer(SignedInConsumer):
    """Consumer that runs a command in the pod `?pod=ROLE-INDEX`, or in the first pod by default.

    The first message of the client is the request. If the connection is refused or ends early, a status
    message contains the reason.
    """

    async def authenticate(self) -> tuple[Credential, frozenset[str]]:
        self.writer: asyncio.StreamWriter | None = None
        self.opened = asyncio.Event()
        self.exit_code: int | None = None
        self.reason = ""
        self.actor: Actor | None = None
        scheme, _, secret = find_header(self.scope["headers"], b"authorization").partition(" ")
        if scheme.lower() != "bearer":
            if not _is_own_page(self.scope["headers"]):
                return Credential(), frozenset()
            return await super().authenticate()
        address = str((self.scope.get("client") or ("",))[0])
        return await database_sync_to_async(_authenticate_token)(secret.strip(), address)

    async def check_permission(self, actor: Actor) -> int:
        self.actor = actor
        workload = self.scope["url_route"]["kwargs"]["workload_id"]
        try:
            self.pod: ChannelPod = await database_sync_to_async(find_channel_pod)(
                actor, workload, self._pod_name()
            )
        except BerthError as error:
            self.reason = error.detail
            return REFUSED + error.status
        return 0

    async def refuse(self, code: int) -> None:
        reason = self.reason or MESSAGES.get(code, "The connection was refused.")
        with suppress(OSError):  # the client may have disconnected
            await self._send_status({"error": reason, "status": code - REFUSED})
            await self.close(code)

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        if not self.tasks:  # refused
            return
        await self.opened.wait()
        if self.writer is None:
            return
        if not bytes_data or bytes_data[0] not in FROM_CLIENT or len(bytes_data) > PAYLOAD_MAX:
            self.reason = "A message does not follow the protocol."
            await self.refuse(PROTOCOL_ERROR)
            self.writer.close()
            return
        # `send_messages` reports that the pod has ended. uvloop raises RuntimeError if the channel is closed.
        with suppress(OSError, RuntimeError):
            self.writer.write(encode_frame(bytes_data[0], bytes_data[1:]))
            await self.writer.drain()

    async def send_messages(self) -> None:
        """Open the channel, and forward its frames until it ends."""
        try:
            await self._serve()
        finally:
            self.opened.set()  # otherwise `receive` would wait forever, and the connection would never end

    async def _serve(self) -> None:
        assert self.actor is not None
        try:
            connection = await database_sync_to_async(self.pod.open)()
        except BerthError as error:
            self.reason = error.detail
            self.opened.set()
            await self.refuse(REFUSED + error.status)
            return
        connection.setblocking(False)
        reader, self.writer = await asyncio.open_connection(sock=connection)
        opened_at = timezone.now()
        try:
            await database_sync_to_async(record_opened)(actor=self.actor, pod=self.pod.pod)
            self.opened.set()
            await self._forward(reader)
        finally:
            self.writer.close()
            await database_sync_to_async(record_closed)(
                actor=self.actor, pod=self.pod.pod, opened_at=opened_at, closed_at=timezone.now(),
                exit_code=self.exit_code,
            )  # fmt: skip
        with suppress(OSError):
            await self.close()

    async def _forward(self, reader: asyncio.StreamReader) -> None:
        frames, is_complete = FrameReader(FROM_POD), False
        with suppress(OSError, BrokenFrames):
            while not is_complete and (data := await reader.read(READ_BYTES)):
                for kind, payload in frames.feed(data):
                    if kind == STATUS:
                        self.exit_code = json.loads(payload).get("exit_code")
                        is_complete = True
                    await self.send(bytes_data=bytes((kind,)) + payload)
        if not is_complete:
            await self._send_status({"error": POD_LOST})

    async def _send_status(self, status: dict[str, object]) -> None:
        await self.send(bytes_data=bytes((STATUS,)) + json.dumps(status).encode())

    def _pod_name(self) -> str | None:
        values = parse_qs(self.scope["query_string"].decode("ascii", "replace")).get("pod")
        return values[0] if values else None


def _is_own_page(headers: Headers) -> bool:
    """Return whether the connection was opened by a Berth page.

    Browsers also send the session cookie from pages on other ports of this host, and pods may serve such
    pages.
    """
    origin, host = find_header(headers, b"origin"), find_header(headers, b"host")
    return urlsplit(origin).netloc.lower() == host.lower() or origin in settings.CSRF_TRUSTED_ORIGINS


def _authenticate_token(secret: str, address: str) -> tuple[Credential, frozenset[str]]:
    """Return the credential and scopes of a token. An empty credential is refused."""
    token = tokens.authenticate(secret)
    if token is None:
        with suppress(RateLimited):
            spend("bad_token", f"address {address}")
        return Credential(), frozenset()
    return Credential(token_id=token.pk), frozenset(token.scopes)
