"""Convert error responses of slurmrestd to provider errors."""

from collections.abc import Mapping, Sequence
from typing import Any

from pools.providers.base import ProviderError, ProviderErrorKind
from pools.providers.slurm.errors import classify_failure
from pools.providers.slurm.rest.connection import Response, Server

Kind = ProviderErrorKind
NO_SUCH_JOB, ALREADY_ENDED, NOTHING_FOUND = 2017, 2021, 9003
TEXT_MAX = 1000
_STATUS_KINDS = {
    401: Kind.CREDENTIALS, 403: Kind.CREDENTIALS, 511: Kind.CREDENTIALS, 404: Kind.SETTINGS,
    429: Kind.THROTTLED, 502: Kind.TIMEOUT, 503: Kind.TIMEOUT, 504: Kind.TIMEOUT,
}  # fmt: skip
REJECTED = (
    "rejects the token of user {user}. Create another with `scontrol token username={user} "
    "lifespan=SECONDS`, and set it with `berth pool edit POOL --slurm-token FILE`"
)
# Slurm 22.05 reports a rejected token in the same way as a controller that does not respond.
UNSPECIFIED = (
    "{text}. Slurm gives no reason: either slurmctld does not respond, or it rejects the token of user "
    "{user}, which may have expired"
)


def reported_errors(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the errors in a response. Entries with the code 0 mean success and are ignored."""
    # Newer Slurm versions report the result of a cancellation as a status.
    statuses = [row.get("error") for row in _json_objects(answer.get("status"))]
    listed = [*_json_objects(answer.get("errors")), *_json_objects(statuses)]
    return [error for error in listed if error_code(error) != 0]


def error_code(error: Mapping[str, Any]) -> int | None:
    codes = (error.get(key) for key in ("error_number", "error_code", "errno", "code"))
    return next((code for code in codes if isinstance(code, int)), None)


def response_error(
    server: Server, response: Response, errors: Sequence[Mapping[str, Any]] = ()
) -> ProviderError:
    """Return the error for a response that reports a failure. The message never contains the token."""
    status_kind = _STATUS_KINDS.get(response.status)
    if status_kind is Kind.CREDENTIALS:
        return ProviderError(Kind.CREDENTIALS, f"{server.label} {REJECTED.format(user=server.user)}")
    if not errors:
        message = f"{server.label} responds with status {response.status}"
        if status_kind is Kind.SETTINGS:
            message += " (not found). Check the path of provider_settings.rest_url"
        return ProviderError(status_kind or Kind.BROKEN, message)
    text = "; ".join(dict.fromkeys(_describe(error) for error in errors))
    text = text.replace(server.token, "TOKEN")[:TEXT_MAX]
    if all(error_code(error) in (-1, None) for error in errors):
        return ProviderError(Kind.TIMEOUT, UNSPECIFIED.format(text=text, user=server.user))
    return ProviderError(classify_failure(text), text)


def unreadable_error(server: Server, subject: str) -> ProviderError:
    """Return the error for a response that does not have the format of slurmrestd's API."""
    message = f"{server.label} sent {subject} that Berth cannot read. Check provider_settings.rest_url"
    return ProviderError(Kind.BROKEN, message)


def _json_objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _describe(error: Mapping[str, Any]) -> str:
    name = str(error.get("error") or error.get("message") or "")
    description = str(error.get("description") or "")
    if name and name in description:
        return description
    return f"{description} ({name})" if name and description else name or description or "unknown error"
