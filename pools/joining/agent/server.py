"""HTTP requests of the agent to Berth's server.

A forged response could run any command on the machine. Plain HTTP is therefore allowed only for a server on
the machine itself, or with BERTH_PLAIN_HTTP=1.
"""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.error
import urllib.request

TIMEOUT = 20.0


class MachineRejected(Exception):
    """Raised if the server rejects this machine or its token. A retry would fail as well."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that rejects redirects, which would send the machine's secret to another server."""

    def redirect_request(self, *arguments: object) -> None:
        return None


class Server:
    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def send(self, path: str, body: dict[str, object], secret: str = "") -> dict[str, object]:
        """Send a request and return the response. Raises MachineRejected, or OSError for other failures."""
        headers = {"Content-Type": "application/json"}
        if secret:
            headers["Authorization"] = "Bearer " + secret
        data = json.dumps(body).encode()
        url = "%s/api/v1/%s" % (self.url, path)
        request = urllib.request.Request(url, data=data, headers=headers, method="POST")
        try:
            with _make_opener().open(request, timeout=TIMEOUT) as response:
                return dict(json.loads(response.read() or b"{}"))
        except urllib.error.HTTPError as error:
            reason = _error_message(error.read())
            if error.code in (401, 404, 422):
                raise MachineRejected(reason) from None
            raise OSError("%d: %s" % (error.code, reason)) from None
        except ValueError as error:
            raise OSError("the response is not JSON: %s" % error) from None

    def download(self, path: str, seconds: float) -> bytes:
        """Download a public file from the server within `seconds`. Raises OSError."""
        deadline, content = time.monotonic() + seconds, b""
        with _make_opener().open("%s/api/v1/%s" % (self.url, path), timeout=TIMEOUT) as response:
            while True:
                part = response.read1(65536)
                if not part:
                    return content
                content += part
                if time.monotonic() > deadline:
                    raise OSError("%s was not received within %d s" % (path, seconds))


def is_safe(url: str) -> bool:
    """Return whether requests to the URL are encrypted, local or sent over a trusted network."""
    scheme, _, rest = url.partition("://")
    host = rest.split("/")[0].rpartition("@")[2].rsplit(":", 1)[0]
    is_local = host in ("localhost", "[::1]") or (host[:4] == "127." and host.replace(".", "").isdigit())
    return scheme == "https" or (scheme == "http" and (is_local or os.environ.get("BERTH_PLAIN_HTTP") == "1"))


def _make_opener() -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cafile=os.environ.get("BERTH_CA") or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirects)


def _error_message(body: bytes) -> str:
    text = body.decode(errors="replace")[:2000]
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text[:500]
