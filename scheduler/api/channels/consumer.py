"""Connect a user to a command or program in a pod.

Each binary message is one frame (see `pools.runtimes.shim.channels.frames`). The relay in the pod enforces
the protocol's limits.
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

from berth.core.errors import BerthError, Malformed, RateLimited
from berth.server.api.rate_limits import spend
from pools.runtimes.shim.channels.frames import (
    FROM_CLIENT,
    FROM_POD,
    PAYLOAD_MAX,
    START,
    STATUS,
    BrokenFrames,
    FrameReader,
    encode_frame,
)
from projects.actor import Actor
from projects.connections.credentials import Credential
from projects.connections.sockets import SIGNED_OUT, TOO_MANY_CONNECTIONS, SignedInConsumer
from projects.models import OpenChannel
from projects.port_proxy.headers import Headers, find_header
from projects.services.people import tokens
from projects.services.workloads.channels import (
    ChannelUse,
    parse_channel_use,
    record_closed_channel,
    record_open_channel,
    record_opened_channel,
)
from scheduler.api.channels.pods import ChannelPod, find_channel_pod

log = logging.getLogger(__name__)

PROTOCOL_ERROR = 4422
REJECTED = 4000  # added to the HTTP status of a rejection to get the close code
READ_BYTES = 64 * 1024
REQUEST_SECONDS = 30.0  # maximum wait for the client's request
POD_LOST = "The pod has ended, or its node is not responding."
MESSAGES = {
    SIGNED_OUT: "You are signed out, or the token is unknown, expired or revoked.",
    TOO_MANY_CONNECTIONS: "You have too many open connections. Close some first.",
}


class ChannelConsumer(SignedInConsumer):
    """WebSocket consumer that opens a channel to the pod in `?pod=ROLE-INDEX`, or to the rank-0 pod.

    The client's first message is the request. A status message says why a connection is rejected or ends
    early.
    """

    async def authenticate(self) -> tuple[Credential, frozenset[str]]:
        self.writer: asyncio.StreamWriter | None = None
        self.requested, self.opened = asyncio.Event(), asyncio.Event()
        self.use: ChannelUse | None = None
        self.exit_code: int | None = None
        self.reason = ""
        self.actor: Actor | None = None
        self.channel: OpenChannel | None = None
        scheme, _, secret = find_header(self.scope["headers"], b"authorization").partition(" ")
        if scheme.lower() != "bearer":
            if not _has_trusted_origin(self.scope["headers"]):
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
            return REJECTED + error.status
        return 0

    async def check(self) -> int:
        code = await super().check()
        if not code and self.channel is not None:
            await database_sync_to_async(record_open_channel)(self.channel, timezone.now())
        return code

    async def reject(self, code: int) -> None:
        reason = self.reason or MESSAGES.get(code, "The connection was refused.")
        with suppress(OSError):  # the client may have disconnected
            await self._send_status({"error": reason, "status": code - REJECTED})
            await self.close(code)

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        if not self.tasks:  # rejected
            return
        try:
            frame = self._check_frame(bytes_data)
        except Malformed as error:
            await self._end_with_error(error.detail)
            return
        await self.opened.wait()
        if self.writer is None:
            return
        # Ignore a closed channel (RuntimeError with uvloop): `send_messages` reports that the pod has ended.
        with suppress(OSError, RuntimeError):
            self.writer.write(encode_frame(frame[0], frame[1:]))
            await self.writer.drain()

    def _check_frame(self, frame: bytes | None) -> bytes:
        """Raise Malformed if the frame may not be forwarded. The first frame must be the request."""
        if not frame or frame[0] not in FROM_CLIENT or len(frame) > PAYLOAD_MAX:
            raise Malformed("A message has an invalid type or size, or is empty.")
        if (frame[0] == START) != (self.use is None):
            raise Malformed("Send exactly one request, as the first message.")
        if self.use is None:
            self.use = parse_channel_use(frame[1:])
            self.requested.set()
        return frame

    async def _end_with_error(self, reason: str) -> None:
        self.reason = reason
        await self.reject(PROTOCOL_ERROR)
        if self.writer is not None:
            self.writer.close()

    async def send_messages(self) -> None:
        """Open the channel, and forward its frames until it ends."""
        try:
            await self._serve()
        finally:
            self.opened.set()  # wake `receive`, which would otherwise keep the connection open forever

    async def _serve(self) -> None:
        assert self.actor is not None
        try:
            connection = await database_sync_to_async(self.pod.open)()
        except BerthError as error:
            self.reason = error.detail
            self.opened.set()
            await self.reject(REJECTED + error.status)
            return
        connection.setblocking(False)
        reader, self.writer = await asyncio.open_connection(sock=connection)
        try:
            await asyncio.wait_for(self.requested.wait(), REQUEST_SECONDS)
        except TimeoutError:
            await self._end_with_error(f"No request was received within {REQUEST_SECONDS:.0f} seconds.")
            return
        finally:
            if self.use is None:
                self.writer.close()
        assert self.use is not None
        await self._serve_request(reader, self.writer, self.actor, self.use)
        with suppress(OSError):
            await self.close()

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, actor: Actor, use: ChannelUse
    ) -> None:
        opening = asyncio.ensure_future(
            database_sync_to_async(record_opened_channel)(
                actor=actor, pod=self.pod.pod, use=use, at=timezone.now()
            )
        )
        try:
            self.channel = await asyncio.shield(opening)
            self.opened.set()
            await self._forward(reader)
        finally:
            writer.close()
            await _wait_until_done(asyncio.ensure_future(self._record_end(opening)))

    async def _record_end(self, opening: asyncio.Future[OpenChannel]) -> None:
        channel = await opening
        await database_sync_to_async(record_closed_channel)(
            channel=channel, at=timezone.now(), exit_code=self.exit_code
        )

    async def _forward(self, reader: asyncio.StreamReader) -> None:
        frames, is_complete = FrameReader(FROM_POD), False
        with suppress(OSError, BrokenFrames):
            while not is_complete and (data := await reader.read(READ_BYTES)):
                for kind, payload in frames.feed(data):
                    if kind == STATUS:
                        self.exit_code = _parse_exit_code(payload)
                        is_complete = True
                    await self.send(bytes_data=bytes((kind,)) + payload)
        if not is_complete:
            await self._send_status({"error": POD_LOST})

    async def _send_status(self, status: dict[str, object]) -> None:
        await self.send(bytes_data=bytes((STATUS,)) + json.dumps(status).encode())

    def _pod_name(self) -> str | None:
        values = parse_qs(self.scope["query_string"].decode("ascii", "replace")).get("pod")
        return values[0] if values else None


async def _wait_until_done(task: asyncio.Task[None]) -> None:
    """Wait until the task has ended, even if this connection is closed meanwhile."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    task.result()


def _parse_exit_code(status: bytes) -> int | None:
    """Return the exit code in the pod's status, or None if the status has none. Raises BrokenFrames."""
    try:
        exit_code = json.loads(status).get("exit_code")
    except (ValueError, AttributeError, RecursionError):
        raise BrokenFrames("the status is not a JSON object") from None
    if not isinstance(exit_code, int | None):
        raise BrokenFrames("the exit code is not an integer")
    return exit_code


def _has_trusted_origin(headers: Headers) -> bool:
    """Return whether a Berth page opened the connection.

    The session cookie is no proof, because browsers also send it from pages that pods serve.
    """
    origin, host = find_header(headers, b"origin"), find_header(headers, b"host")
    return urlsplit(origin).netloc.lower() == host.lower() or origin in settings.CSRF_TRUSTED_ORIGINS


def _authenticate_token(secret: str, address: str) -> tuple[Credential, frozenset[str]]:
    """Return (credential, scopes) for an API token. The credential is empty if the token is invalid."""
    token = tokens.authenticate(secret)
    if token is None:
        with suppress(RateLimited):
            spend("bad_token", f"address {address}")
        return Credential(), frozenset()
    return Credential(token_id=token.pk), frozenset(token.scopes)
