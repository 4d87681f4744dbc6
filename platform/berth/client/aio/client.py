"""The asyncio client of one server."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import httpx

from berth.client.aio.templates import AsyncTemplates
from berth.client.aio.transport import AsyncTransport
from berth.client.aio.workloads import AsyncWorkloads
from berth.client.answers import Identity, PasswordChanged
from berth.client.config import Settings, load_settings
from berth.client.machine_answers import NodePool
from berth.client.retry import Patience

if TYPE_CHECKING:
    from berth.client.aio.session import AsyncSession
    from berth.client.sessions.options import Asked


class AsyncClient:
    """One server, one person: who they are, their workloads, templates, sessions. Use it in an `async with`.

    Without settings, the address and token come from the environment or from the file `berth login` wrote.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        http: httpx.AsyncBaseTransport | None = None,
        patience: Patience | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.settings = settings or load_settings()
        self._sleep = sleep
        self._transport = AsyncTransport(self.settings, http=http, patience=patience, sleep=sleep)
        self.workloads = AsyncWorkloads(self._transport, sleep)
        self.templates = AsyncTemplates(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def whoami(self) -> Identity:
        return Identity.model_validate(await self._transport.get("whoami"))

    async def sign_in(self, username: str, password: str) -> str:
        """A token for this person; this client goes on with what it was opened with."""
        answer = await self._transport.post("login", {"username": username, "password": password})
        return str(answer["token"])

    async def change_password(
        self, current: str, new: str, *, revoke_tokens: bool = False
    ) -> PasswordChanged:
        """Change your password. Tokens created by sign-in end; `revoke_tokens` revokes all others as well.
        Where this client uses a token created by sign-in, it goes on with the token of the answer."""
        body = {"current_password": current, "new_password": new, "revoke_tokens": revoke_tokens}
        changed = PasswordChanged.model_validate(await self._transport.post("password", body))
        if changed.token is not None:
            self._transport.use_token(changed.token)
            self.settings = self._transport.settings
        return changed

    def session(
        self,
        pool: str | Sequence[str],
        nodes: int | tuple[int, int] = 1,
        *,
        start_timeout: float | None = None,
        **asked: Unpack["Asked"],
    ) -> "AsyncSession":
        """Nodes of a pool that run Python functions; open it with `async with`. What may be asked for is what
        Client.session takes."""
        from berth.client.aio.session import AsyncSession
        from berth.client.sessions.options import options_of

        options = options_of(pool, nodes, self.settings.project, asked)
        return AsyncSession(
            self._transport, options, pool=self._pool, start_timeout=start_timeout, sleep=self._sleep
        )

    async def _pool(self, name: str) -> NodePool:
        return NodePool.model_validate(await self._transport.get(f"node-pools/{name}"))
