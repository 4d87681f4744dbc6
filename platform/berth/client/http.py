"""Requests and responses, the same for both clients."""

import os
import ssl
from collections.abc import Mapping
from datetime import date
from typing import Any

import httpx

from berth.client.config import BadSettings, Settings
from berth.client.errors import Refused, ServerFailed, Unreachable, refusal
from berth.client.retry import Loss

Params = Mapping[str, object]
PAGE = 200
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def manners(settings: Settings) -> dict[str, Any]:
    """How every connection of ours is set up. A proxy for the outside world must not get requests for this
    machine."""
    headers = {"Accept": "application/json", "User-Agent": "berth-client"}
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    given: dict[str, Any] = {
        "base_url": f"{settings.address}/api/v1/",
        "headers": headers,
        "timeout": TIMEOUT,
        "trust_env": not settings.is_local,
    }
    if settings.is_local and (known := os.environ.get("SSL_CERT_FILE")):
        given["verify"] = _trusting(known)  # what is trusted elsewhere is trusted here too
    return given


def _trusting(file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise BadSettings(f"SSL_CERT_FILE: {file} cannot be read: {error.strerror or error}") from None


def unreachable(settings: Settings, error: httpx.TransportError) -> Unreachable:
    return Unreachable(f"cannot reach {settings.address}: {str(error) or type(error).__name__}")


def loss_of(error: httpx.TransportError) -> Loss:
    return Loss.NEVER_SENT if isinstance(error, NEVER_SENT) else Loss.UNANSWERED


def content_of(answer: httpx.Response) -> Any:
    """The JSON of an answer; another kind of server at that address is told apart from ours."""
    try:
        return answer.json()
    except ValueError:
        problem = {
            "title": "No Berth there",
            "detail": f"{answer.request.url} answered something else than JSON",
        }
        raise ServerFailed(502, problem) from None


def refused(answer: httpx.Response) -> Refused:
    try:
        problem = answer.json()
    except ValueError:
        problem = {}
    asked = answer.headers.get("Retry-After", "")
    return refusal(
        answer.status_code,
        problem if isinstance(problem, dict) else {},
        float(asked) if asked.isdigit() else None,
    )


def carried(body: object) -> Any:
    """As JSON can carry it: a time, such as YAML reads of a file, goes as the text it was."""
    if isinstance(body, Mapping):
        return {key: carried(value) for key, value in body.items()}
    if isinstance(body, list | tuple):
        return [carried(value) for value in body]
    return body.isoformat() if isinstance(body, date) else body


def plain(params: Params | None) -> dict[str, Any]:
    """Parameters as they stand in an address; those that say nothing are left out."""
    words = {True: "true", False: "false"}
    return {
        key: words[value] if isinstance(value, bool) else value
        for key, value in (params or {}).items()
        if value is not None and value != ()
    }
