"""Session protocol shared by the synchronous and asynchronous clients."""

import logging
import uuid
from collections.abc import Iterable
from typing import Any

from berth.client.errors import ClientError, Conflict, Rejected, ServerFailed, SessionEnded, Unreachable
from berth.client.models.sessions import SessionState
from berth.client.sessions.calls import OutgoingCall, PendingCalls
from berth.core.frames import CONTENT_TYPE, pack_frames, unpack_frames

BULK_THRESHOLD = 8  # above this number of open calls, wait briefly to fetch results in bulk
BULK_DELAY_SECONDS = 0.1
LONG_POLL_SECONDS = 20.0
RETRY_SECONDS = 0.5
MAX_OUTAGE_SECONDS = 300.0  # long enough for a server restart
FRAME_HEADERS = {"Content-Type": CONTENT_TYPE}
RETRYABLE_REASONS = ("no-node", "full")
# Seconds until the first log line, and between later lines.
FIRST_LOG_SECONDS, LOG_INTERVAL_SECONDS = 10.0, 60.0

log = logging.getLogger("berth.session")


class StartProgress:
    """Logger that periodically reports why a session is still waiting for its nodes."""

    def __init__(self) -> None:
        self._reported_at: float | None = None

    def report(self, state: SessionState, waited_seconds: float) -> None:
        since = waited_seconds if self._reported_at is None else waited_seconds - self._reported_at
        if since < (FIRST_LOG_SECONDS if self._reported_at is None else LOG_INTERVAL_SECONDS):
            return
        self._reported_at = waited_seconds
        explanation = f"{state.reason}: {state.message}" if state.reason else state.message
        log.warning(
            "%s/%s has waited for its nodes for %.0f s: %s",
            state.project,
            state.name,
            waited_seconds,
            explanation,
        )


class Outage:
    """Outage of the server. Clients retry for a limited time, because the server may be restarting."""

    def __init__(self) -> None:
        self._unreachable_since: float | None = None

    def clear(self) -> None:
        self._unreachable_since = None

    def record_error(self, error: ClientError, now: float) -> bool:
        """Record an error. Return True if retrying should stop."""
        if not isinstance(error, Unreachable | ServerFailed):
            return True
        self._unreachable_since = self._unreachable_since or now
        return now - self._unreachable_since > MAX_OUTAGE_SECONDS


def calls_body(batch: Iterable[OutgoingCall]) -> bytes:
    return pack_frames(call.frame() for call in batch)


def cancelled_calls_body(keys: Iterable[uuid.UUID]) -> dict[str, Any]:
    return {"keys": [str(key) for key in keys]}


def handle_results(calls: PendingCalls, content: bytes, after: int) -> int:
    """Handle all outcomes, and return the sequence number of the last one.

    Raises ServerFailed if the server reports a problem.
    """
    for header, data in unpack_frames(content):
        if "problem" in header:
            raise ServerFailed(500, header["problem"])
        calls.handle_outcome(header, data)
        after = max(after, int(header["number"]))
    return after


def is_retryable(error: ClientError) -> bool:
    """Return whether a rejected request can be retried soon."""
    return isinstance(error, Conflict) and error.reason in RETRYABLE_REASONS


def session_error(error: ClientError) -> ClientError:
    """Return the error for outstanding calls when the session cannot be reached."""
    if isinstance(error, Rejected) and error.status in (404, 409):
        return SessionEnded(error.detail)
    return error
