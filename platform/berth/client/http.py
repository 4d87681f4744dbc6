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


def connection_options(settings: Settings) -> dict[str, Any]:
    """Return the httpx options of a connection. Requests to this machine do not use a proxy."""
    headers = {"Accept": "application/json", "User-Agent": "berth-client"}
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    options: dict[str, Any] = {
        "base_url": f"{settings.address}/api/v1/",
        "headers": headers,
        "timeout": TIMEOUT,
        "trust_env": not settings.is_local,
    }
    if settings.is_local and (certificates := os.environ.get("SSL_CERT_FILE")):
        options["verify"] = _trusting(certificates)  # trust_env is off for local servers
    return options


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
    """Return the JSON of an answer; raise ServerFailed if another kind of server answered."""
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
    delay = answer.headers.get("Retry-After", "")
    return refusal(
        answer.status_code,
        problem if isinstance(problem, dict) else {},
        float(delay) if delay.isdigit() else None,
    )


def carried(body: object) -> Any:
    """Return the body as JSON values; dates, which YAML parses, become text again."""
    if isinstance(body, Mapping):
        return {key: carried(value) for key, value in body.items()}
    if isinstance(body, list | tuple):
        return [carried(value) for value in body]
    return body.isoformat() if isinstance(body, date) else body


def plain(params: Params | None) -> dict[str, Any]:
    """Return query parameters as text, without empty ones."""
    words = {True: "true", False: "false"}
    return {
        key: words[value] if isinstance(value, bool) else value
        for key, value in (params or {}).items()
        if value is not None and value != ()
    }
