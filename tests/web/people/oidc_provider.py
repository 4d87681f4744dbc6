"""An OpenID Connect provider over HTTP with scripted faults."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "berth", "a secret between two"


class Provider(ThreadingHTTPServer):
    """A provider that signs in `person`. `forged_claims` replace ID token claims.

    A different `key` forges the signature.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = f"http://127.0.0.1:{self.server_address[1]}"
        self.published = published_key()
        self.key = self.published
        self.person: dict[str, Any] = {
            "sub": "00u1", "preferred_username": "hedy", "email": "hedy@example.org", "email_verified": True,
        }  # fmt: skip
        self.forged_claims: dict[str, Any] = {}
        self.error = ""
        self.codes: dict[str, dict[str, str]] = {}

    def token(self, request: dict[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 60, "nonce": request["nonce"],
            **self.person, **self.forged_claims,
        }  # fmt: skip
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        parameters = {key: values[0] for key, values in parse_qs(at.query).items()}
        base = self.server.issuer
        if at.path == "/.well-known/openid-configuration":
            self._json(200, {
                "issuer": base, "authorization_endpoint": f"{base}/authorize", "jwks_uri": f"{base}/keys",
                "token_endpoint": f"{base}/token", "response_types_supported": ["code"],
                "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"],
            })  # fmt: skip
        elif at.path == "/keys":
            self._json(200, {"keys": [self.server.published.as_dict(private=False)]})
        elif at.path == "/authorize":
            self._redirect(parameters)
        else:
            self._json(404, {})

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {key: values[0] for key, values in parse_qs(text).items()}
        request = self.server.codes.pop(form.get("code", ""), None)
        if request is None or not self._is_client(form) or not _matches(request, form):
            self._json(400, {"error": "invalid_grant"})
            return
        token = self.server.token(request)
        self._json(200, {"access_token": "x", "token_type": "Bearer", "expires_in": 60, "id_token": token})

    def _redirect(self, request: dict[str, str]) -> None:
        answer = {"state": request["state"]}
        if self.server.error:
            answer |= {"error": "access_denied", "error_description": self.server.error}
        else:
            code = secrets.token_urlsafe()
            self.server.codes[code] = request
            answer["code"] = code
        self.send_response(302)
        self.send_header("Location", f"{request['redirect_uri']}?{urlencode(answer)}")
        self.end_headers()

    def _is_client(self, form: dict[str, str]) -> bool:
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        return self.headers.get("Authorization") == f"Basic {basic}" or form.get("client_secret") == SECRET

    def _json(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _matches(request: dict[str, str], form: dict[str, str]) -> bool:
    """Return whether the code verifier (RFC 7636) and redirect URL match the sign-in request."""
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return request["code_challenge"] == challenge and request["redirect_uri"] == form.get("redirect_uri")


@cache
def published_key() -> RSAKey:
    """Return one key for all providers, because key generation is slow."""
    return RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)


@contextmanager
def running_provider() -> Iterator[Provider]:
    provider = Provider()
    thread = Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.shutdown()
        provider.server_close()
        thread.join(5)
