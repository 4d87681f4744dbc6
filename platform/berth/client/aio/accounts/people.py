"""Manage tokens, roles and user accounts."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from urllib.parse import quote

from berth.client.aio.resource import AsyncResource
from berth.client.models.people import Deactivation, Member, NewToken, Token, User, UserDetail


class AsyncTokens(AsyncResource):
    def list(self, user: str | None = None, *, everyone: bool = False) -> AsyncIterator[Token]:
        """Iterate over your tokens. Platform admins can also list other users' tokens."""
        return self._iterate(Token, "tokens", {"user": user, "everyone": everyone or None})

    async def create(self, name: str, scopes: Sequence[str], expires_at: datetime | None = None) -> NewToken:
        """Create a token. The result's `token` is the secret, which cannot be read again."""
        body = {
            "name": name,
            "scopes": list(scopes),
            "expires_at": expires_at.isoformat() if expires_at else None,
        }
        return await self._post(NewToken, "tokens", body)

    async def revoke(self, token_id: int | str) -> None:
        """Revoke one of your tokens or, as a platform admin, any user's token."""
        await self._delete(f"tokens/{token_id}")


class AsyncMembers(AsyncResource):
    """Roles that users have in projects, in departments and platform-wide."""

    def list(
        self, *, project: str | None = None, department: str | None = None, user: str | None = None
    ) -> AsyncIterator[Member]:
        params = {"project": project, "department": department, "user": user}
        return self._iterate(Member, "members", params)

    async def grant(
        self, user: str, role: str, *, project: str | None = None, department: str | None = None
    ) -> Member:
        """Grant a role in a project or a department, or platform-wide if neither is given."""
        scope = {"project": project, "department": department}
        body = {"user": user, "role": role, **{key: name for key, name in scope.items() if name is not None}}
        return await self._post(Member, "members", body)

    async def revoke(self, member_id: int) -> None:
        await self._delete(f"members/{member_id}")


class AsyncUsers(AsyncResource):
    def list(
        self, search: str | None = None, *, active: bool | None = None, limit: int | None = None
    ) -> AsyncIterator[User]:
        """Iterate over the users that you administer. `active=False` selects deactivated accounts."""
        return self._iterate(User, "users", {"search": search, "active": active}, limit)

    async def get(self, username: str) -> UserDetail:
        return await self._get(UserDetail, _path(username))

    async def deactivate(self, username: str) -> Deactivation:
        """Deactivate a user.

        Their tokens and sessions are revoked, but their workloads keep running. Raises Conflict for yourself
        and for the last platform admin.
        """
        return await self._post(Deactivation, f"{_path(username)}/deactivate")

    async def activate(self, username: str) -> UserDetail:
        """Reactivate a user. Revoked tokens stay revoked."""
        return await self._post(UserDetail, f"{_path(username)}/activate")

    async def create(self, username: str, *, email: str = "", password: str | None = None) -> User:
        """Create an account. Without a password, the user can sign in only through single sign-on."""
        body = {"username": username, "email": email, "password": password}
        return await self._post(User, "users", body)


def _path(username: str) -> str:
    return f"users/{quote(username, safe='')}"
