"""Here we sign in, say who we are, and keep tokens."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from berth.client.answers import Identity, Token
from berth.client.transport import Transport


class Tokens:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[Token]:
        for item in self._transport.pages("tokens"):
            yield Token.model_validate(item)

    def create(self, name: str, scopes: Sequence[str], expires_at: datetime | None = None) -> Token:
        """`token` of the answer is the secret; it is said this once."""
        body = {
            "name": name,
            "scopes": list(scopes),
            "expires_at": expires_at.isoformat() if expires_at else None,
        }
        return Token.model_validate(self._transport.post("tokens", body))

    def revoke(self, token_id: int | str) -> None:
        self._transport.ask("DELETE", f"tokens/{token_id}")


def sign_in(transport: Transport, username: str, password: str) -> str:
    """A token for this person."""
    return str(transport.post("login", {"username": username, "password": password})["token"])


def identity(transport: Transport) -> Identity:
    return Identity.model_validate(transport.get("whoami"))
