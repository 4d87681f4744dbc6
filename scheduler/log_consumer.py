"""Here an open page follows a pod's log: what the pod writes is sent as it is written."""

import asyncio
import codecs
import contextlib
from typing import Any
from urllib.parse import parse_qs

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer

from berth.core.errors import BerthError, Unavailable
from pools.runtimes.base import LogChunk
from projects.acting import Acting
from scheduler.api.log_reading import PodLog, log_of_pod
from scheduler.consumers import LOOK_AGAIN_SECONDS, SIGNED_OUT

NOT_THERE = 4404
PIECE = 256 * 1024
SILENT_SECONDS = 0.5  # between two looks at a log to which nothing was added
TROUBLED_SECONDS = 3.0


class LogConsumer(AsyncJsonWebsocketConsumer):
    """Sends {"text", "begin", "next", "complete"}, from `?offset=` of `?pod=` on, to the pod's end."""

    async def connect(self) -> None:
        self.teller: asyncio.Task[None] | None = None
        asked = parse_qs(self.scope["query_string"].decode("ascii", "replace"))
        self.pod = asked.get("pod", [""])[0]
        offset = asked.get("offset", ["0"])[0]
        await self.accept()
        if await self._look():
            start = int(offset) if offset.isascii() and offset.isdigit() and len(offset) < 17 else 0
            self.teller = asyncio.create_task(self._tell(start))

    async def disconnect(self, code: int) -> None:
        if self.teller is not None:
            self.teller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.teller

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        """Pages only listen; what they say is dropped unread."""

    async def _tell(self, offset: int) -> None:
        loop, decoder = asyncio.get_running_loop(), codecs.getincrementaldecoder("utf-8")("replace")
        look_again = loop.time() + LOOK_AGAIN_SECONDS
        while True:
            if loop.time() >= look_again:
                if not await self._look():
                    return
                look_again = loop.time() + LOOK_AGAIN_SECONDS
            try:
                chunk: LogChunk = await database_sync_to_async(self.log.piece)(offset, PIECE)
            except Unavailable:
                await asyncio.sleep(TROUBLED_SECONDS)
                continue
            offset = chunk.next_offset
            if chunk.data or chunk.complete:
                text = decoder.decode(chunk.data, chunk.complete)
                told = {"text": text, "begin": chunk.offset, "next": offset, "complete": chunk.complete}
                await self.send_json(told)
            if chunk.complete:
                await self.close()
                return
            if not chunk.data:
                await asyncio.sleep(SILENT_SECONDS)

    async def _look(self) -> bool:
        """Whether the reader may still read it; who may not is told so, and the line is closed."""
        user = await get_user(self.scope)
        if not user.is_authenticated or not user.is_active:
            await self.close(SIGNED_OUT)
            return False
        try:
            self.log: PodLog = await database_sync_to_async(log_of_pod)(
                Acting.person(user), self.scope["url_route"]["kwargs"]["workload_id"], self.pod
            )
        except BerthError:
            await self.close(NOT_THERE)
            return False
        return True
