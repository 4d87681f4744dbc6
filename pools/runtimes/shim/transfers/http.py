"""Send HTTP requests from a node to Berth's server for one of its pods."""

from __future__ import annotations

from pools.runtimes.shim.transfers.child import FAILED, RETRY, TransferFailure

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from http.client import HTTPResponse
    from typing import Any
    from urllib.request import OpenerDirector

READ_SECONDS = 60.0  # a server that sends no data for this many seconds has failed
TEMPORARY = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses after which another attempt may succeed
_LOOPBACK = ("http://127.", "http://localhost", "http://[::1]")


def build_opener(url: str, ca: str) -> OpenerDirector:
    """Return a URL opener that does not follow redirects.

    `ca` contains the CA certificates used to verify the server. If it is empty, the node's own are used.
    """
    import ssl
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            """Reject a redirect, which would send the secret to another server."""

    context = ssl.create_default_context(cadata=ca or None)
    handlers = [urllib.request.HTTPSHandler(context=context), NoRedirects()]
    if url.startswith(_LOOPBACK):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def open_url(url: str, secret: str, ca: str, body: object = None) -> HTTPResponse:
    """Send a request to Berth's server. A body is sent as JSON. Raises TransferFailure."""
    import json
    import urllib.error
    import urllib.request

    headers = {"Authorization": f"Bearer {secret}"}
    data = None
    if body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    request = urllib.request.Request(url, data, headers)  # noqa: S310
    try:
        response: HTTPResponse = build_opener(url, ca).open(request, timeout=READ_SECONDS)
    except urllib.error.HTTPError as error:
        text = error.read(4096).decode("utf-8", "replace")
        try:
            text = json.loads(text)["detail"]
        except (ValueError, KeyError, TypeError):
            pass
        kind = RETRY if error.code in TEMPORARY else FAILED
        raise TransferFailure(kind, f"the server responded with {error.code}: {text[:300]}") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise TransferFailure(RETRY, f"{url.split('/')[2]} cannot be reached: {reason}") from error
    return response


def read_json(response: HTTPResponse) -> Any:
    """Read and parse the whole response. Raises TransferFailure."""
    import http.client
    import json

    try:
        with response:
            return json.load(response)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TransferFailure(RETRY, f"the connection was lost: {error!r}") from error
