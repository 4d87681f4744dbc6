"""Run Berth's own programs for file copying and SFTP in Kubernetes pods.

The code of these programs is sent to the Python in the pod's image. On other runtimes, the shim on the node
runs the same programs.
"""

import asyncio
import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels.client import ChannelClient
from pools.kubernetes.channels.session import Session, read_status, start_session
from pools.kubernetes.channels.tasks import cancel_task
from pools.runtimes.base import ChannelRejected
from pools.runtimes.shim.channels.frames import (
    CREDIT,
    END,
    ERRORS,
    FROM_POD,
    INPUT,
    OUTPUT,
    START,
    STATUS,
    WINDOW,
    BrokenFrames,
    FrameReader,
    decode_credit,
    encode_credit,
    encode_frame,
)
from pools.runtimes.shim.channels.programs import COPY_FROM, COPY_TO, SFTP

KINDS = (COPY_TO, COPY_FROM, SFTP)
NO_PYTHON = (
    "{reason}. Berth needs Python 3.9 or newer in the image, as `python3`. Without it, use commands, for "
    "example `berth exec NAME -- cat FILE`"
)
MISSING = "its image has no `python3`"
MISSING_TEXTS = ("not found", "no such file")  # phrases in the error messages of container runtimes
TEXT_MAX = 300
CREDIT_MIN = WINDOW // 4  # smaller amounts of credit would cause many small messages
_SOURCE = Path(__file__).resolve().parents[3]
_SHIM = "pools/runtimes/shim"
_PARTS = (
    "pools/__init__.py", "pools/runtimes/__init__.py", f"{_SHIM}/__init__.py", f"{_SHIM}/entry.py",
    f"{_SHIM}/processes.py", f"{_SHIM}/channels/*.py", f"{_SHIM}/channels/sftp/*.py",
)  # fmt: skip


@cache
def build_package() -> bytes:
    """Return the package to send to a pod: compressed JSON with each module's source code."""
    paths = [path for part in _PARTS for path in sorted(_SOURCE.glob(part))]
    names = {path: path.relative_to(_SOURCE).with_suffix("").as_posix().replace("/", ".") for path in paths}
    sources = {name.removesuffix(".__init__"): path.read_text("utf-8") for path, name in names.items()}
    return zlib.compress(json.dumps(sources).encode(), 9)


@cache
def boot_command() -> tuple[str, ...]:
    """Return the command that loads and runs the package and ignores PYTHON* environment variables."""
    boot = Path(__file__).with_name("boot.py").read_text("utf-8")
    return ("python3", "-I", "-S", "-c", boot, str(len(build_package())))


class Program:
    """Program that runs in a pod to serve one channel's request."""

    def __init__(self, api: Api, pod: str, client: ChannelClient) -> None:
        self._api, self._pod, self._client = api, pod, client
        self._errors = bytearray()  # stderr of the Python that runs the program
        self._accepted = self._sent = 0  # bytes of input and output for which no credit has been sent
        self._status: dict[str, object] | None = None

    async def run(self) -> dict[str, object] | None:
        """Run the program and return its status, or None if the connection to the cluster was lost.

        The program ends when the connection does. Raises ChannelRejected or RuntimeFailure.
        """
        session = await start_session(self._api, self._pod, boot_command(), has_input=True, has_output=True)
        receiver = asyncio.create_task(self._receive(session))
        sender = asyncio.create_task(self._send(session))
        try:
            await asyncio.wait({receiver, sender}, return_when=asyncio.FIRST_COMPLETED)
            if not receiver.done():
                sender.result()
            await receiver
        finally:
            await cancel_task(sender)
            await cancel_task(receiver)
            await session.close()
        if self._status is None:
            self._check_end(session)
        return self._status

    async def _send(self, session: Session) -> None:
        client = self._client
        await session.send_input(build_package())
        await session.send_input(encode_frame(START, json.dumps(client.request).encode()))
        while not client.input_ended or client.has_input:
            await client.has_event.wait()
            client.has_event.clear()
            while data := client.take_input():
                await session.send_input(encode_frame(INPUT, data))
        await session.send_input(encode_frame(END))

    async def _receive(self, session: Session) -> None:
        frames = FrameReader(FROM_POD)
        async for stream, data in session.read_output():
            if stream != OUTPUT:
                self._errors += data
                del self._errors[:-TEXT_MAX]
                continue
            try:
                received = frames.feed(data)
            except BrokenFrames as error:
                raise ChannelRejected(f"the pod's Python could not run Berth's program: {error}") from None
            for kind, payload in received:
                self._check_frame(kind, payload)
                if kind == CREDIT:
                    self._acknowledge_input(decode_credit(payload))
                elif kind in (OUTPUT, ERRORS):
                    await self._client.send_output(kind, payload)
                    await self._acknowledge(session, len(payload))
                elif kind == STATUS:
                    self._status = _parse_status(payload)
                    return

    def _check_frame(self, kind: int, payload: bytes) -> None:
        """Raise ChannelRejected for a frame that Berth's program never sends.

        The pod's processes can modify the program, so its frames are not trusted.
        """
        if kind == CREDIT:
            is_valid = 0 < decode_credit(payload) <= self._client.unacknowledged - self._accepted
        else:
            is_valid = kind == STATUS or (kind in (OUTPUT, ERRORS) and bool(payload))
        if not is_valid:
            raise ChannelRejected(
                f"the pod's Python could not run Berth's program: unexpected frame of kind {kind}"
            )

    def _acknowledge_input(self, count: int) -> None:
        """Acknowledge input that the program has accepted."""
        self._accepted += count
        if self._accepted >= CREDIT_MIN:
            self._client.acknowledge(self._accepted)
            self._accepted = 0

    async def _acknowledge(self, session: Session, count: int) -> None:
        """Acknowledge output that the client has received."""
        self._sent += count
        if self._sent >= CREDIT_MIN:
            await session.send_input(encode_credit(self._sent))
            self._sent = 0

    def _check_end(self, session: Session) -> None:
        """Raise ChannelRejected if the program ended without a status, unless the connection was lost."""
        status = read_status(session.status)
        if status is None:
            return
        error = str(status.get("error") or "")
        printed = " ".join(self._errors.decode("utf-8", "replace").split())
        if any(text in error.casefold() for text in MISSING_TEXTS):
            raise ChannelRejected(NO_PYTHON.format(reason=MISSING))
        if printed.startswith("its image has"):
            raise ChannelRejected(NO_PYTHON.format(reason=printed))
        raise ChannelRejected(
            error or printed or f"Berth's program exited with code {status.get('exit_code')}"
        )


def _parse_status(payload: bytes) -> dict[str, object]:
    try:
        status: Any = json.loads(payload)
        error = {"error": str(status["error"])} if status.get("error") else {}
        if "exit_code" in status:
            return {**error, "exit_code": int(status["exit_code"])}
        return {**error, "status": 422}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ChannelRejected("the pod's Python could not run Berth's program") from None
