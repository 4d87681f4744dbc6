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
WAIT = 20.0  # seconds for which the server may delay an answer
RETRY_SECONDS = 0.5
OUT_OF_REACH_SECONDS = 300.0  # to wait for a server that restarts
FRAMES = {"Content-Type": CONTENT_TYPE}
LATER = ("no-node", "full")
FIRST_WORD_SECONDS, NEXT_WORD_SECONDS = 10.0, 60.0  # of waiting for nodes

log = logging.getLogger("berth.session")


class SessionNode(Model):
    """A node that accepts calls."""

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
        reason = self.error or self.message or f"it is {self.phase}"
        return SessionEnded(f"The session {self.project}/{self.name} has ended: {reason}")

    def start_timeout(self, wanted: int, seconds: float) -> SessionEnded:
        state = f"{self.phase}: {self.message}"
        return SessionEnded(f"{wanted} nodes were not there within {seconds:g} s ({state})")


class StartProgress:
    """Log from time to time why a session still waits for its nodes."""

    def __init__(self) -> None:
        self._reported_at: float | None = None

    def report(self, state: SessionState, waited: float) -> None:
        since = waited if self._reported_at is None else waited - self._reported_at
        if since < (FIRST_WORD_SECONDS if self._reported_at is None else NEXT_WORD_SECONDS):
            return
        self._reported_at = waited
        why = f"{state.reason}: {state.message}" if state.reason else state.message
        log.warning("%s/%s has waited for its nodes for %.0f s: %s", state.project, state.name, waited, why)


class Outage:
    """How long the server has been unreachable; a restart is waited for."""

    def __init__(self) -> None:
        self._out_since: float | None = None

    def clear(self) -> None:
        self._out_since = None

    def is_final(self, error: ClientError, now: float) -> bool:
        """Return whether a repetition is useless."""
        if not isinstance(error, Unreachable | ServerFailed):
            return True
        self._out_since = self._out_since or now
        return now - self._out_since > OUT_OF_REACH_SECONDS


def calls_body(batch: Iterable[Outgoing]) -> bytes:
    return packed(call.frame() for call in batch)


def drop_body(keys: Iterable[uuid.UUID]) -> dict[str, Any]:
    return {"keys": [str(key) for key in keys]}


def take_results(calls: PendingCalls, content: bytes, after: int) -> int:
    """Handle every outcome; return the number of the last."""
    for words, data in unpacked(content):
        if "problem" in words:
            raise ServerFailed(500, words["problem"])
        calls.take(words, data)
        after = max(after, int(words["number"]))
    return after


def is_retryable(error: ClientError) -> bool:
    """Return whether a refused request may be sent again soon."""
    return isinstance(error, Conflict) and error.reason in LATER


def session_error(error: ClientError) -> ClientError:
    """Return the error of outstanding calls when the session can no longer be reached."""
    if isinstance(error, Refused) and error.status in (404, 409):
        return SessionEnded(error.detail)
    return error
