"""The requests of a session, shared by the synchronous and the asyncio client."""

import logging
import uuid
from collections.abc import Iterable
from typing import Any

from berth.client.errors import ClientError, Conflict, Refused, ServerFailed, SessionEnded, Unreachable
from berth.client.models.base import Model
from berth.client.sessions.calls import Outgoing, PendingCalls
from berth.core.frames import CONTENT_TYPE, packed, unpacked

FEW, GATHER_SECONDS = 8, 0.1  # many results are fetched together, a few at once
WAIT = 20.0  # seconds that the server may hold an answer back
RETRY_SECONDS = 0.5
OUT_OF_REACH_SECONDS = 300.0  # for so long a server that restarts is waited for
FRAMES = {"Content-Type": CONTENT_TYPE}
LATER = ("no-node", "full")
FIRST_WORD_SECONDS, NEXT_WORD_SECONDS = 10.0, 60.0  # of waiting for nodes

log = logging.getLogger("berth.session")


class SessionNode(Model):
    """A node that takes calls."""

    node: int
    pod: str = ""
    pool: str = ""
    python: str = ""


class SessionState(Model):
    id: str
    name: str = ""
    project: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    error: str = ""
    run: int = 0
    slots: int = 1
    call_bytes_max: int = 32 << 20
    nodes: list[SessionNode] = []

    @property
    def has_ended(self) -> bool:
        return bool(self.error) or self.phase in ("completed", "failed", "cancelled")

    def end(self) -> SessionEnded:
        said = self.error or self.message or f"it is {self.phase}"
        return SessionEnded(f"The session {self.project}/{self.name} has ended: {said}")

    def start_timeout(self, wanted: int, seconds: float) -> SessionEnded:
        said = f"{self.phase}: {self.message}"
        return SessionEnded(f"{wanted} nodes were not there within {seconds:g} s ({said})")


class StartProgress:
    """Who waits for a session's nodes is told why, now and then: else a session looks as if it hung."""

    def __init__(self) -> None:
        self._told_at: float | None = None

    def report(self, state: SessionState, waited: float) -> None:
        since = waited if self._told_at is None else waited - self._told_at
        if since < (FIRST_WORD_SECONDS if self._told_at is None else NEXT_WORD_SECONDS):
            return
        self._told_at = waited
        why = f"{state.reason}: {state.message}" if state.reason else state.message
        log.warning("%s/%s has waited for its nodes for %.0f s: %s", state.project, state.name, waited, why)


class Outage:
    """Whether the server can be reached; one that restarts is waited for."""

    def __init__(self) -> None:
        self._out_since: float | None = None

    def clear(self) -> None:
        self._out_since = None

    def is_final(self, error: ClientError, now: float) -> bool:
        """True where there is no use in trying again."""
        if not isinstance(error, Unreachable | ServerFailed):
            return True
        self._out_since = self._out_since or now
        return now - self._out_since > OUT_OF_REACH_SECONDS


def calls_body(batch: Iterable[Outgoing]) -> bytes:
    return packed(call.frame() for call in batch)


def drop_body(keys: Iterable[uuid.UUID]) -> dict[str, Any]:
    return {"keys": [str(key) for key in keys]}


def take_results(calls: PendingCalls, content: bytes, after: int) -> int:
    """Hands every outcome on; returns up to which one there are."""
    for words, data in unpacked(content):
        if "problem" in words:
            raise ServerFailed(500, words["problem"])
        calls.take(words, data)
        after = max(after, int(words["number"]))
    return after


def is_retryable(error: ClientError) -> bool:
    """Whether what was refused may be sent once more, in a moment."""
    return isinstance(error, Conflict) and error.reason in LATER


def session_error(error: ClientError) -> ClientError:
    """What calls are told when no more can be sent or fetched."""
    if isinstance(error, Refused) and error.status in (404, 409):
        return SessionEnded(error.detail)
    return error
