"""Client's side of a channel, with flow control in both directions."""

import asyncio
import json
import logging
from typing import Any

from pools.runtimes.shim.channels.frames import (
    CHUNK,
    CREDIT,
    END,
    FROM_CLIENT,
    INPUT,
    RESIZE,
    START,
    WINDOW,
    BrokenFrames,
    FrameReader,
    decode_credit,
    encode_credit,
    encode_frame,
)

log = logging.getLogger(__name__)

SIZE_MAX = 10_000  # maximum rows or columns of a terminal


class ChannelClient:
    """Client of one channel to `pod`. The flow control window limits the size of the buffers."""

    def __init__(self, pod: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pod, self._reader, self._writer = pod, reader, writer
        self.request: dict[str, Any] = {}
        self.has_request = asyncio.Event()
        self.size: tuple[int, int] | None = None  # terminal size that the client sent last
        self.input_ended = False
        self.unacknowledged = 0  # bytes of input that were sent but not yet accepted by the pod
        self.has_progress = asyncio.Event()
        # Set when the client sends input, the end of input or a terminal size.
        self.has_event = asyncio.Event()
        self._input = bytearray()
        self._window = WINDOW  # bytes of output that the client can still accept
        self._has_window = asyncio.Event()
        self._has_window.set()

    @property
    def has_input(self) -> bool:
        return bool(self._input)

    def take_input(self) -> bytes:
        """Return the next bytes of input, if any. `acknowledge` gives the client credit for them."""
        data = bytes(self._input[:CHUNK])
        del self._input[:CHUNK]
        self.unacknowledged += len(data)
        return data

    def acknowledge(self, count: int) -> None:
        """Send credit to the client for input that the pod has accepted.

        The credit never exceeds the unacknowledged input, because the pod's reports are not trusted.
        """
        count = min(count, self.unacknowledged)
        self.unacknowledged -= count
        if count:
            self._writer.write(encode_credit(count))
        self.has_progress.set()

    async def send(self, kind: int, payload: bytes) -> None:
        """Send a frame that is exempt from flow control."""
        self._writer.write(encode_frame(kind, payload))
        await self._writer.drain()

    async def send_output(self, kind: int, data: bytes) -> None:
        """Send output to the client within its flow control window."""
        while data:
            await self._has_window.wait()
            part = data[: min(CHUNK, self._window)]
            data = data[len(part) :]
            self._window -= len(part)
            if not self._window:
                self._has_window.clear()
            await self.send(kind, part)

    async def receive(self) -> None:
        """Process the client's frames until the client disconnects."""
        frames = FrameReader(FROM_CLIENT)
        try:
            while data := await self._reader.read(CHUNK):
                for kind, payload in frames.feed(data):
                    self._process(kind, payload)
        except Exception as error:
            log.info("the client of a channel of %s has failed: %r", self._pod, error)

    def _process(self, kind: int, payload: bytes) -> None:
        if kind == START and not self.has_request.is_set():
            self.request = _parse_object(payload)
            self.has_request.set()
        elif kind == INPUT:
            self._input += payload
            if self.unacknowledged + len(self._input) > WINDOW:
                raise BrokenFrames("the client sent more input than the window allows")
            self.has_event.set()
        elif kind == CREDIT:
            self._window = min(self._window + decode_credit(payload), WINDOW)
            if self._window:
                self._has_window.set()
        elif kind == RESIZE:
            self.size = terminal_size(_parse_object(payload))
            self.has_event.set()
        elif kind == END:
            self.input_ended = True
            self.has_event.set()


def _parse_object(payload: bytes) -> dict[str, Any]:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BrokenFrames("a frame does not contain a JSON object")
    return value


def terminal_size(size: dict[str, object]) -> tuple[int, int]:
    """Return the rows and columns of a terminal. Raises ValueError."""
    rows, columns = (int(str(size.get(name, default))) for name, default in (("rows", 24), ("columns", 80)))
    if not (0 < rows <= SIZE_MAX and 0 < columns <= SIZE_MAX):
        raise ValueError(f"a terminal must have 1 to {SIZE_MAX} rows and columns")
    return rows, columns
