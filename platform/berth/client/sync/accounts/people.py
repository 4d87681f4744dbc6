# Generated from berth/client/aio/accounts/people.py by `python -m berth.client.generate`; do not edit.
"""Manage tokens, roles and user accounts."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import quote

from berth.client.models.people import Deactivation, Member, NewToken, Token, User, UserDetail
from berth.client.sync.resource import Resource


class Tokens(Resource):
    def list(self, user: str | None = None, *, everyone: bool = False) -> Iterator[Token]:
        """Iterate over your tokens. Platform admins can also list other users' tokens."""
        return self._iterate(Token, "tokens", {"user": user, "everyone": everyone or None})

    def create(self, name: str, scopes: Sequence[str], expires_at: datetime | None = None) -> NewToken:
        """Create a token. The result's `token` is the secret, which cannot be read again."""
        body = {
            "name": name,
            "scopes": list(scopes),
            "expires_at": expires_at.isoformat() if expires_at else None,
        }
        return self._post(NewToken, "tokens", body)

    def revoke(self, token_id: int | str) -> None:
        """Revoke one of your tokens or, as a platform admin, any user's token."""
        self._delete(f"tokens/{token_id}")


class Members(Resource):
    """Roles that users have in projects, in departments and platform-wide."""

    def list(
        self, *, project: str | None = None, department: str | None = None, user: str | None = None
    ) -> Iterator[Member]:
        params = {"project": project, "department": department, "user": user}
        return self._iterate(Member, "members", params)

    def grant(
        self, user: str, role: str, *, project: str | None = None, department: str | None = None
    ) -> Member:
        """Grant a role in a project or a department, or platform-wide if neither is given."""
        scope = {"project": project, "department": department}
        body = {"user": user, "role": role, **{key: name for key, name in scope.items() if name is not None}}
        return self._post(Member, "members", body)

    def revoke(self, member_id: int) -> None:
        self._delete(f"members/{member_id}")


class Users(Resource):
    def list(
        self, search: str | None = None, *, active: bool | None = None, limit: int | None = None
    ) -> Iterator[User]:
        """Iterate over the users that you administer. `active=False` selects deactivated accounts."""
        return self._iterate(User, "users", {"search": search, "active": active}, limit)

    def get(self, username: str) -> UserDetail:
        return self._get(UserDetail, _path(username))

    def deactivate(self, username: str) -> Deactivation:
        """Deactivate a user.

        Their tokens and sessions are revoked, but their workloads keep running. Raises Conflict for yourself
        and for the last platform admin.
        """
        return self._post(Deactivation, f"{_path(username)}/deactivate")

    def activate(self, username: str) -> UserDetail:
        """Reactivate a user. Revoked tokens stay revoked."""
        return self._post(UserDetail, f"{_path(username)}/activate")

    def create(self, username: str, *, email: str = "", password: str | None = None) -> User:
        """Create an account. Without a password, the user can sign in only through single sign-on."""
        body = {"username": username, "email": email, "password": password}
        return self._post(User, "users", body)


def _path(username: str) -> str:
    return f"users/{quote(username, safe='')}"
