"""Errors that a request can raise.

Every error has a stable `code`. `to_problem` returns a problem document (RFC 9457).
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from berth.core.problems import Problem


class BerthError(Exception):
    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Something went wrong"

    def __init__(self, detail: str = "", **extra: Any) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.extra = extra

    def to_problem(self) -> dict[str, Any]:
        return {
            "type": f"urn:berth:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            **self.extra,
        }


class Malformed(BerthError):
    code, status, title = "malformed", 400, "The request is malformed"


class Unauthenticated(BerthError):
    code, status, title = "unauthenticated", 401, "Sign in first"


class Forbidden(BerthError):
    code, status, title = "forbidden", 403, "Your role does not allow this"


class MissingScope(Forbidden):
    def __init__(self, scope: str) -> None:
        example = f"for example one from `berth token create NAME --scope {scope}`"
        super().__init__(
            f"This token lacks the {scope} scope. Use a token that has the scope, {example}.", allowed=[scope]
        )


class NotFound(BerthError):
    code, status, title = "not-found", 404, "The object does not exist"


class Conflict(BerthError):
    code, status, title = "conflict", 409, "The object's current state does not allow this"


class RequestTimeout(BerthError):
    code, status, title = "request-timeout", 408, "The request took too long to arrive"


class PreconditionFailed(BerthError):
    code, status, title = "precondition-failed", 412, "The object has changed since you read it"


class TooLarge(BerthError):
    code, status, title = "too-large", 413, "The request is too large"


class Invalid(BerthError):
    code, status, title = "invalid", 422, "Some values are not allowed"

    def __init__(self, problems: Iterable[Problem], **extra: Any) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(p) for p in self.problems[:5]), **extra)

    def to_problem(self) -> dict[str, Any]:
        return {**super().to_problem(), "errors": [problem.to_dict() for problem in self.problems]}


class PreconditionRequired(BerthError):
    code, status, title = "precondition-required", 428, "Specify the version that you are changing"


class RateLimited(BerthError):
    code, status, title = "rate-limited", 429, "Too many requests"

    def __init__(self, retry_after: int, detail: str = "") -> None:
        super().__init__(detail or f"Try again in {retry_after} s.", retry_after=retry_after)
        self.retry_after = retry_after


class Unavailable(BerthError):
    code, status, title = "unavailable", 503, "A part of Berth is currently unavailable"
