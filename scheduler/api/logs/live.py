"""WebSocket that streams a pod's log to an open page."""

import asyncio
import codecs
from urllib.parse import parse_qs

from channels.db import database_sync_to_async

from berth.core.errors import BerthError, Unavailable
from pools.runtimes.base import LogChunk
from projects.actor import Actor
from projects.connections.sockets import SignedInConsumer
from scheduler.api.logs.pod_log import PodLog, find_pod_log
from scheduler.api.logs.timestamps import line_times

NOT_FOUND = 4404
CHUNK_BYTES = 256 * 1024
IDLE_POLL_SECONDS = 0.5  # seconds between reads while the log has no new data
RETRY_SECONDS = 3.0


class LogConsumer(SignedInConsumer):
    """WebSocket consumer that sends the log of the pod in `?pod=`, from `?offset=` until the pod has ended.

    Messages are {"text", "begin", "next", "complete"}, and with `?timestamps=true` also `times`.
    """

    async def check_permission(self, actor: Actor) -> int:
        workload = self.scope["url_route"]["kwargs"]["workload_id"]
        try:
            self.log: PodLog = await database_sync_to_async(find_pod_log)(
                actor, workload, self._query_parameter("pod", "")
            )
        except BerthError:
            return NOT_FOUND
        return 0

    async def send_messages(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        offset_text = self._query_parameter("offset", "0")
        offset = (
            int(offset_text)
            if offset_text.isascii() and offset_text.isdigit() and len(offset_text) < 17
            else 0
        )
        with_times = self._query_parameter("timestamps", "") == "true"
        while True:
            try:
                chunk: LogChunk = await database_sync_to_async(self.log.read_chunk)(offset, CHUNK_BYTES)
            except Unavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            offset = chunk.next_offset
            if chunk.data or chunk.complete:
                text = decoder.decode(chunk.data, chunk.complete)
                message = {"text": text, "begin": chunk.offset, "next": offset, "complete": chunk.complete}
                if with_times:
                    message["times"] = await database_sync_to_async(_line_times)(self.log, chunk)
                await self.send_json(message)
            if chunk.complete:
                await self.close()
                return
            if not chunk.data:
                await asyncio.sleep(IDLE_POLL_SECONDS)

    def _query_parameter(self, name: str, default: str) -> str:
        values = parse_qs(self.scope["query_string"].decode("ascii", "replace"))
        return values.get(name, [default])[0]


def _line_times(log: PodLog, chunk: LogChunk) -> list[tuple[int, int]]:
    """Return the times of a chunk's lines, or an empty list if the node does not respond."""
    try:
        return line_times(log, chunk)
    except Unavailable:
        return []
