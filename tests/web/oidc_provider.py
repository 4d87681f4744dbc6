"""An OpenID Connect provider over HTTP with scripted faults."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "berth", "a secret between two"


class Provider(ThreadingHTTPServer):
    """Whoever comes is `person`. `lies` replace claims of the ID token; `key` may be changed for another."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.issuer = f"http://127.0.0.1:{self.server_address[1]}"
        self.published = RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)
        self.key = self.published
        self.person: dict[str, Any] = {
            "sub": "00u1", "preferred_username": "hedy", "email": "hedy@example.org", "email_verified": True,
        }  # fmt: skip
        self.lies: dict[str, Any] = {}
        self.refuses = ""
        self.codes: dict[str, dict[str, str]] = {}

    def token(self, asked: dict[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 60, "nonce": asked["nonce"],
            **self.person, **self.lies,
        }  # fmt: skip
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)


class _Answers(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(at.query).items()}
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
            self._back(asked)
        else:
            self._json(404, {})

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        given = {key: values[0] for key, values in parse_qs(text).items()}
        known = self.server.codes.pop(given.get("code", ""), None)
        if known is None or not self._is_client(given) or not _fits(known, given):
            self._json(400, {"error": "invalid_grant"})
            return
        token = self.server.token(known)
        self._json(200, {"access_token": "x", "token_type": "Bearer", "expires_in": 60, "id_token": token})

    def _back(self, asked: dict[str, str]) -> None:
        answer = {"state": asked["state"]}
        if self.server.refuses:
            answer |= {"error": "access_denied", "error_description": self.server.refuses}
        else:
            code = secrets.token_urlsafe()
            self.server.codes[code] = asked
            answer["code"] = code
        self.send_response(302)
        self.send_header("Location", f"{asked['redirect_uri']}?{urlencode(answer)}")
        self.end_headers()

    def _is_client(self, given: dict[str, str]) -> bool:
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        return self.headers.get("Authorization") == f"Basic {basic}" or given.get("client_secret") == SECRET

    def _json(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


def _fits(known: dict[str, str], given: dict[str, str]) -> bool:
    """The code verifier (RFC 7636) and the address that the person was sent back to."""
    digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return known["code_challenge"] == challenge and known["redirect_uri"] == given.get("redirect_uri")


@contextmanager
def providing() -> Iterator[Provider]:
    provider = Provider()
    thread = Thread(target=provider.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.shutdown()
        provider.server_close()
        thread.join(5)
