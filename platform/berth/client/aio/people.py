"""Manage tokens, roles and user accounts."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from berth.client.aio.transport import AsyncTransport
from berth.client.models.people import Member, NewToken, Token, User


class AsyncTokens:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> AsyncIterator[Token]:
        async for item in self._transport.iterate_items("tokens"):
            yield Token.model_validate(item)

    async def create(self, name: str, scopes: Sequence[str], expires_at: datetime | None = None) -> NewToken:
        """Create a token. The result's `token` is the secret, which cannot be read again."""
        body = {
            "name": name,
            "scopes": list(scopes),
            "expires_at": expires_at.isoformat() if expires_at else None,
        }
        return NewToken.model_validate(await self._transport.post("tokens", body))

    async def revoke(self, token_id: int | str) -> None:
        await self._transport.execute("DELETE", f"tokens/{token_id}")


class AsyncMembers:
    """Roles that users have in projects, in departments and platform-wide."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(
        self, *, project: str | None = None, department: str | None = None, user: str | None = None
    ) -> AsyncIterator[Member]:
        params = {"project": project, "department": department, "user": user}
        async for item in self._transport.iterate_items("members", params):
            yield Member.model_validate(item)

    async def grant(
        self, user: str, role: str, *, project: str | None = None, department: str | None = None
    ) -> Member:
        """Grant a role in a project or a department, or platform-wide if neither is given."""
        scope = {"project": project, "department": department}
        body = {"user": user, "role": role, **{key: name for key, name in scope.items() if name is not None}}
        return Member.model_validate(await self._transport.post("members", body))

    async def revoke(self, member_id: int) -> None:
        await self._transport.execute("DELETE", f"members/{member_id}")


class AsyncUsers:
    """User accounts."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, search: str | None = None, *, limit: int | None = None) -> AsyncIterator[User]:
        async for item in self._transport.iterate_items("users", {"search": search}, limit):
            yield User.model_validate(item)

    async def create(self, username: str, *, email: str = "", password: str | None = None) -> User:
        """Create an account. Without a password, the user can sign in only through single sign-on."""
        body = {"username": username, "email": email, "password": password}
        return User.model_validate(await self._transport.post("users", body))
