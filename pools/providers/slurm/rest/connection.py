"""Send HTTP requests to slurmrestd, with limits on time and response size."""

import asyncio
import json
import ssl
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from pools.providers.base import ProviderError, ProviderErrorKind

RESPONSE_BYTES_MAX = 64 * 1024 * 1024  # a parsed response takes several times as much memory
UNIX = "unix:"
Kind = ProviderErrorKind


@dataclass(frozen=True, slots=True)
class Server:
    """Address and credentials of slurmrestd. `ca` contains certificates in PEM format, or is empty."""

    url: str
    user: str
    token: str = field(repr=False)
    ca: str = ""

    @property
    def label(self) -> str:
        return f"slurmrestd at {self.url}"


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    content: bytes

    def json(self) -> Mapping[str, Any] | None:
        """Return the body's JSON object, or None if the body is not a JSON object."""
        try:
            value = json.loads(self.content)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


class Connection:
    """Connection to slurmrestd on behalf of one user.

    Redirects are not followed, because they could send the token to another server.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._socket = server.url.removeprefix(UNIX) if server.url.startswith(UNIX) else None
        self._base = "http://localhost" if self._socket else server.url.rstrip("/")

    def call(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None, seconds: float,
    ) -> Response:  # fmt: skip
        """Send a request and return the response, even with an error status. Raises ProviderError.

        After a TIMEOUT error, the request may still have taken effect.
        """
        try:
            response = _run(self._call(method, path, params, body, seconds))
        except (TimeoutError, httpx.TimeoutException):
            raise self._error(Kind.TIMEOUT, f"did not respond within {seconds:g} s") from None
        except (httpx.InvalidURL, UnicodeError) as error:
            raise self._error(Kind.SETTINGS, f"has an invalid address: {error}") from None
        except httpx.ConnectError as error:
            raise self._connect_error(error) from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise self._error(Kind.TIMEOUT, f"closed the connection too early: {reason}") from None
        if 300 <= response.status < 400:
            message = (
                f"responds with a redirect (status {response.status}). Berth does not follow redirects, "
                "because that would send the token to another address. Set "
                "provider_settings.rest_url to the final address"
            )
            raise self._error(Kind.SETTINGS, message)
        return response

    async def _call(
        self, method: str, path: str, params: Mapping[str, str] | None, body: Mapping[str, Any] | None,
        seconds: float,
    ) -> Response:  # fmt: skip
        headers = {
            "X-SLURM-USER-NAME": self.server.user, "X-SLURM-USER-TOKEN": self.server.token,
            "Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "berth",
        }  # fmt: skip
        transport = httpx.AsyncHTTPTransport(
            verify=self._tls_verification(), uds=self._socket, trust_env=False
        )
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(transport=transport, trust_env=False, timeout=seconds) as http,
            http.stream(method, f"{self._base}{path}", params=params, json=body, headers=headers) as response,
        ):
            content = bytearray()
            async for part in response.aiter_raw():
                content += part
                if len(content) > RESPONSE_BYTES_MAX:
                    limit = f"{RESPONSE_BYTES_MAX // 1024**2} MiB"
                    message = (
                        f"sent a response to {path} of more than {limit}. If it lists the jobs of all users, "
                        "set PrivateData=jobs in slurm.conf, or let the pool use Slurm's programs"
                    )
                    raise self._error(Kind.BROKEN, message)
            return Response(response.status_code, bytes(content))

    def _tls_verification(self) -> ssl.SSLContext | bool:
        if self._base.startswith("http:"):
            return False
        return ssl.create_default_context(cadata=self.server.ca or None)

    def _connect_error(self, error: httpx.ConnectError) -> ProviderError:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                message = (
                    f"has a certificate that cannot be verified: {cause.verify_message}. Set "
                    "provider_settings.rest_ca to the certificate of its CA, in PEM format"
                )
                return self._error(Kind.SETTINGS, message)
            cause = cause.__cause__ or cause.__context__
        return self._error(Kind.TIMEOUT, f"cannot be reached: {error}")

    def _error(self, kind: ProviderErrorKind, message: str) -> ProviderError:
        return ProviderError(kind, f"{self.server.label} {message}")


def _run(call: Coroutine[Any, Any, Response]) -> Response:
    """Run a coroutine. Unlike `asyncio.run`, do not wait for a hanging name resolution."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(call)
    finally:
        loop.close()
