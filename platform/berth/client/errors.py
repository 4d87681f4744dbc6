"""Errors between a program and the server."""

from collections.abc import Mapping, Sequence
from typing import Any

from berth.core.problems import Problem


class ClientError(Exception):
    """Anything that kept a call from being answered as asked."""


class Unreachable(ClientError):
    """No answer came: the server is not there, or the connection was lost too often."""


class Ambiguous(ClientError):
    """A name that fits several workloads; `candidates` are the handles that would be understood."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        super().__init__(f"{name} names {len(candidates)} workloads: {', '.join(candidates)}")
        self.candidates = tuple(candidates)


class SessionError(ClientError):
    """A session, or one call in it, did not do what was asked."""


class SessionEnded(SessionError):
    """The session is over: cancelled, failed, idle for too long, or unfit to run anything. It says which."""


class NotPicklable(SessionError):
    """What was to be sent cannot be pickled; the message names the part of it that cannot."""


class CallTooLarge(SessionError):
    """A function with its arguments, or a result, has more bytes than may be sent."""


class CallInterrupted(SessionError):
    """Its worker died or was taken away, as often as a call may be tried."""


class CallFailed(SessionError):
    """The worker could not run the function, or not send what it returned; the message says why."""


class RemoteError(SessionError):
    """The function raised an error that cannot be opened here; this says what it was."""


class RemoteTraceback(Exception):
    """The cause of an error that a function raised on its node: where that was, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


class Refused(ClientError):
    """The server answered no. The fields are those of its problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.code = str(problem.get("code", ""))
        self.title = str(problem.get("title", "")) or f"The server answered {status}"
        self.detail = str(problem.get("detail", "")) or self.title
        self.reason = str(problem.get("reason", ""))
        self.problems = tuple(
            _problem(entry) for entry in problem.get("errors") or () if isinstance(entry, Mapping)
        )
        self.retry_after = retry_after
        super().__init__(self.detail)

    def lines(self) -> list[str]:
        """What to show: one line for each field that is wrong, else one sentence."""
        return [str(problem) for problem in self.problems] or [self.detail]


class Invalid(Refused):
    """Something in the request is not allowed."""


class NotSignedIn(Refused):
    """There is no token, or it is not valid any more."""


class Forbidden(Refused):
    """The object is visible, the action is not allowed."""


class NotFound(Refused):
    """There is no such object, or none that this person may see."""


class Conflict(Refused):
    """The object's state, or somebody's change meanwhile, does not allow it."""


class RateLimited(Refused):
    """Too many requests; `retry_after` says when to come back."""


class ServerFailed(Refused):
    """The server broke while answering."""


BY_STATUS: Mapping[int, type[Refused]] = {
    400: Invalid, 401: NotSignedIn, 403: Forbidden, 404: NotFound, 409: Conflict, 412: Conflict, 413: Invalid,
    415: Invalid, 422: Invalid, 428: Conflict, 429: RateLimited,
}  # fmt: skip


def refusal(status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> Refused:
    """The error that fits an answer."""
    kind = ServerFailed if status >= 500 else BY_STATUS.get(status, Refused)
    return kind(status, problem, retry_after)


def _problem(entry: Mapping[str, Any]) -> Problem:
    return Problem(*(str(entry.get(key) or "") for key in ("path", "message", "received", "allowed")))
