"""Exceptions raised by the client."""

from collections.abc import Mapping, Sequence
from typing import Any

from berth.core.problems import Problem


class ClientError(Exception):
    """Base class of all client errors."""


class Unreachable(ClientError):
    """The server did not respond, or the connection was lost too many times."""


class Ambiguous(ClientError):
    """The name matches several workloads. `candidates` lists their unambiguous handles."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        super().__init__(f"{name} matches {len(candidates)} workloads: {', '.join(candidates)}")
        self.candidates = tuple(candidates)


class CopyFailed(ClientError):
    """A file or directory could not be copied to or from a pod. The message contains its path."""


class SessionError(ClientError):
    """A session or one of its calls failed."""


class SessionEnded(SessionError):
    """The session was cancelled, failed, was idle for too long, or could not run calls."""


class NotPicklable(SessionError):
    """A function, its arguments or its result cannot be pickled. The message states which part."""


class CallTooLarge(SessionError):
    """The function and arguments of a call, or its result, exceed the size limit."""


class CallInterrupted(SessionError):
    """The worker died or was evicted on every attempt to run the call."""


class CallFailed(SessionError):
    """The worker could not run the function or send its result. The message states the reason."""


class RemoteError(SessionError):
    """The function raised an error that cannot be unpickled here. The message describes the error."""


class RemoteTraceback(Exception):
    """Traceback from a node, attached as the cause of the error that the client raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


class Rejected(ClientError):
    """The server rejected the request. The error's fields come from the problem document in the response."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.code = str(problem.get("code", ""))
        self.title = str(problem.get("title", "")) or f"The server responded with status {status}"
        self.detail = str(problem.get("detail", "")) or self.title
        self.reason = str(problem.get("reason", ""))
        self.problems = tuple(
            _to_problem(entry) for entry in problem.get("errors") or () if isinstance(entry, Mapping)
        )
        self.retry_after = retry_after
        super().__init__(self.detail)

    def lines(self) -> list[str]:
        """Return one line per invalid field, or the error's detail if there are none."""
        return [str(problem) for problem in self.problems] or [self.detail]


class Invalid(Rejected):
    """The request is invalid."""


class NotSignedIn(Rejected):
    """The token is missing, expired or revoked."""


class Forbidden(Rejected):
    """The object is visible, but the action is not allowed."""


class NotFound(Rejected):
    """The object does not exist, or is hidden from the user."""


class Conflict(Rejected):
    """The request conflicts with the object's state or with a concurrent change."""

    def lines(self) -> list[str]:
        """Return only the error's detail, because a conflict depends not only on the request's values."""
        return [self.detail]


class RateLimited(Rejected):
    """Too many requests were sent. Retry after `retry_after` seconds."""


class ServerFailed(Rejected):
    """The server failed while handling the request."""


BY_STATUS: Mapping[int, type[Rejected]] = {
    400: Invalid, 401: NotSignedIn, 403: Forbidden, 404: NotFound, 409: Conflict, 412: Conflict, 413: Invalid,
    415: Invalid, 422: Invalid, 428: Conflict, 429: RateLimited,
}  # fmt: skip


def error_for_status(status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> Rejected:
    """Return the error for an HTTP status and a problem document."""
    kind = ServerFailed if status >= 500 else BY_STATUS.get(status, Rejected)
    return kind(status, problem, retry_after)


def _to_problem(entry: Mapping[str, Any]) -> Problem:
    return Problem(*(str(entry.get(key) or "") for key in ("path", "message", "received", "allowed")))
