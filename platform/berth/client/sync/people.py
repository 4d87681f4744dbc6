# Generated from berth/client/aio/people.py by `python -m berth.client.generate`; do not edit.
"""Manage tokens, roles and user accounts."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from berth.client.models.people import Member, NewToken, Token, User
from berth.client.sync.transport import Transport


class Tokens:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[Token]:
        for item in self._transport.iterate_items("tokens"):
            yield Token.model_validate(item)

    def create(self, name: str, scopes: Sequence[str], expires_at: datetime | None = None) -> NewToken:
        """Create a token. The result's `token` is the secret, which cannot be read again."""
        body = {
            "name": name,
            "scopes": list(scopes),
            "expires_at": expires_at.isoformat() if expires_at else None,
        }
        return NewToken.model_validate(self._transport.post("tokens", body))

    def revoke(self, token_id: int | str) -> None:
        self._transport.execute("DELETE", f"tokens/{token_id}")


class Members:
    """Roles that users have in projects, in departments and platform-wide."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, *, project: str | None = None, department: str | None = None, user: str | None = None
    ) -> Iterator[Member]:
        params = {"project": project, "department": department, "user": user}
        for item in self._transport.iterate_items("members", params):
            yield Member.model_validate(item)

    def grant(
        self, user: str, role: str, *, project: str | None = None, department: str | None = None
    ) -> Member:
        """Grant a role in a project or a department, or platform-wide if neither is given."""
        scope = {"project": project, "department": department}
        body = {"user": user, "role": role, **{key: name for key, name in scope.items() if name is not None}}
        return Member.model_validate(self._transport.post("members", body))

    def revoke(self, member_id: int) -> None:
        self._transport.execute("DELETE", f"members/{member_id}")


class Users:
    """User accounts."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, search: str | None = None, *, limit: int | None = None) -> Iterator[User]:
        for item in self._transport.iterate_items("users", {"search": search}, limit):
            yield User.model_validate(item)

    def create(self, username: str, *, email: str = "", password: str | None = None) -> User:
        """Create an account. Without a password, the user can sign in only through single sign-on."""
        body = {"username": username, "email": email, "password": password}
        return User.model_validate(self._transport.post("users", body))
