"""HTTP request and response helpers shared by both clients."""

import os
import ssl
from collections.abc import Mapping
from datetime import date
from typing import Any

import httpx

from berth.client.config import InvalidSettings, Settings
from berth.client.errors import Rejected, ServerFailed, Unreachable, error_for_status
from berth.client.retry import RequestFailure
from berth.core.wording.reasons import plain_reason

Params = Mapping[str, object]
PAGE = 200
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def connection_options(settings: Settings) -> dict[str, Any]:
    """Return the httpx options for a connection. Requests to the local machine bypass proxies."""
    headers = {"Accept": "application/json", "User-Agent": "berth-client"}
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    options: dict[str, Any] = {
        "base_url": f"{settings.address}/api/v1/",
        "headers": headers,
        "timeout": TIMEOUT,
        "trust_env": not settings.is_local,
    }
    if not settings.address.startswith("https:"):
        # Avoid loading certificates, which takes 40 ms.
        options["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    elif settings.is_local and (certificates := os.environ.get("SSL_CERT_FILE")):
        options["verify"] = _ssl_context(certificates)  # httpx ignores SSL_CERT_FILE if trust_env is off
    return options


def _ssl_context(file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise InvalidSettings(f"SSL_CERT_FILE: {file} cannot be read: {error.strerror or error}") from None


def unreachable_error(settings: Settings, error: httpx.TransportError) -> Unreachable:
    return Unreachable(f"cannot reach {settings.address}: {plain_reason(error)}")


def classify_failure(error: httpx.TransportError) -> RequestFailure:
    return RequestFailure.NEVER_SENT if isinstance(error, NEVER_SENT) else RequestFailure.UNANSWERED


def json_content(response: httpx.Response) -> Any:
    """Return the JSON body of a response. Raises ServerFailed if the body is not JSON."""
    try:
        return response.json()
    except ValueError:
        problem = {
            "title": "Not a Berth server",
            "detail": f"{response.request.url} did not return JSON",
        }
        raise ServerFailed(502, problem) from None


def error_from_response(response: httpx.Response) -> Rejected:
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    delay = response.headers.get("Retry-After", "")
    return error_for_status(
        response.status_code,
        problem if isinstance(problem, dict) else {},
        float(delay) if delay.isdigit() else None,
    )


def to_json_values(body: object) -> Any:
    """Return the body as JSON values. Dates that YAML has parsed are converted back to text."""
    if isinstance(body, Mapping):
        return {key: to_json_values(value) for key, value in body.items()}
    if isinstance(body, list | tuple):
        return [to_json_values(value) for value in body]
    return body.isoformat() if isinstance(body, date) else body


def query_params(params: Params | None) -> dict[str, Any]:
    """Return the query parameters without empty values and with booleans as text."""
    words = {True: "true", False: "false"}
    return {
        key: words[value] if isinstance(value, bool) else value
        for key, value in (params or {}).items()
        if value is not None and value != ()
    }
