"""Client for a server's REST API."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING

import httpx
from typing_extensions import Self, Unpack

from berth.client.aio.transport import AsyncTransport
from berth.client.config import Settings, load_settings
from berth.client.retry import RetryPolicy

if TYPE_CHECKING:
    from berth.client.aio.accounts.people import AsyncMembers, AsyncTokens, AsyncUsers
    from berth.client.aio.accounts.subscriptions import AsyncSubscriptions
    from berth.client.aio.accounts.tenants import (
        AsyncDepartments,
        AsyncProjects,
        AsyncQuotaGroups,
        AsyncQuotas,
        AsyncSecrets,
    )
    from berth.client.aio.history import AsyncAudit, AsyncCycles, AsyncEvents, AsyncEvictions
    from berth.client.aio.pools import AsyncNodePools, AsyncNodes, AsyncQueues
    from berth.client.aio.services import AsyncServices
    from berth.client.aio.session import AsyncSession
    from berth.client.aio.usage import AsyncBudgets, AsyncUsage, AsyncUtilization
    from berth.client.aio.workloads.arrays import AsyncArrays
    from berth.client.aio.workloads.code import AsyncCode
    from berth.client.aio.workloads.outputs import AsyncFiles, AsyncOutputs
    from berth.client.aio.workloads.schedules import AsyncSchedules
    from berth.client.aio.workloads.templates import AsyncTemplates
    from berth.client.aio.workloads.workloads import AsyncWorkloads
    from berth.client.models.people import Identity, PasswordChange
    from berth.client.sessions.options import SessionOptions

# Import each class on first use, because most commands need only one or two of these slow imports.
RESOURCES = {
    "workloads": "workloads.workloads.AsyncWorkloads",
    "code": "workloads.code.AsyncCode",
    "arrays": "workloads.arrays.AsyncArrays",
    "outputs": "workloads.outputs.AsyncOutputs",
    "files": "workloads.outputs.AsyncFiles",
    "events": "history.AsyncEvents",
    "evictions": "history.AsyncEvictions",
    "cycles": "history.AsyncCycles",
    "audit": "history.AsyncAudit",
    "departments": "accounts.tenants.AsyncDepartments",
    "projects": "accounts.tenants.AsyncProjects",
    "quotas": "accounts.tenants.AsyncQuotas",
    "quota_groups": "accounts.tenants.AsyncQuotaGroups",
    "secrets": "accounts.tenants.AsyncSecrets",
    "queues": "pools.AsyncQueues",
    "node_pools": "pools.AsyncNodePools",
    "nodes": "pools.AsyncNodes",
    "services": "services.AsyncServices",
    "usage": "usage.AsyncUsage",
    "utilization": "usage.AsyncUtilization",
    "budgets": "usage.AsyncBudgets",
    "subscriptions": "accounts.subscriptions.AsyncSubscriptions",
    "schedules": "workloads.schedules.AsyncSchedules",
    "templates": "workloads.templates.AsyncTemplates",
    "tokens": "accounts.people.AsyncTokens",
    "members": "accounts.people.AsyncMembers",
    "users": "accounts.people.AsyncUsers",
}


class AsyncClient:
    """Client for one server, authenticated as one user.

    Close it after use, or use `async with`. By default, the URL and the token come from the environment or
    from `berth login`.
    """

    workloads: "AsyncWorkloads"
    code: "AsyncCode"
    arrays: "AsyncArrays"
    outputs: "AsyncOutputs"
    files: "AsyncFiles"
    events: "AsyncEvents"
    evictions: "AsyncEvictions"
    cycles: "AsyncCycles"
    audit: "AsyncAudit"
    departments: "AsyncDepartments"
    projects: "AsyncProjects"
    quotas: "AsyncQuotas"
    quota_groups: "AsyncQuotaGroups"
    secrets: "AsyncSecrets"
    queues: "AsyncQueues"
    node_pools: "AsyncNodePools"
    nodes: "AsyncNodes"
    services: "AsyncServices"
    usage: "AsyncUsage"
    utilization: "AsyncUtilization"
    budgets: "AsyncBudgets"
    subscriptions: "AsyncSubscriptions"
    schedules: "AsyncSchedules"
    templates: "AsyncTemplates"
    tokens: "AsyncTokens"
    members: "AsyncMembers"
    users: "AsyncUsers"

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        http: httpx.AsyncBaseTransport | None = None,
        retry_policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.settings = settings or load_settings()
        self._sleep = sleep
        self._transport = AsyncTransport(self.settings, http=http, retry_policy=retry_policy, sleep=sleep)

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report misspelt attributes

        def __getattr__(self, name: str) -> object:
            if name not in RESOURCES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            module, _, class_name = RESOURCES[name].rpartition(".")
            resource = getattr(import_module(f"berth.client.aio.{module}"), class_name)(self._transport)
            setattr(self, name, resource)
            return resource

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def whoami(self) -> "Identity":
        from berth.client.models.people import Identity

        return Identity.model_validate(await self._transport.get("whoami"))

    async def sign_in(self, username: str, password: str) -> str:
        """Return a new token for the user, without replacing the client's own token."""
        response = await self._transport.post("login", {"username": username, "password": password})
        return str(response["token"])

    async def change_password(
        self, current: str, new: str, *, revoke_tokens: bool = False
    ) -> "PasswordChange":
        """Change your password and revoke your sign-in tokens, except this client's.

        `revoke_tokens` revokes your other tokens too.
        """
        from berth.client.models.people import PasswordChange

        body = {"current_password": current, "new_password": new, "revoke_tokens": revoke_tokens}
        changed = PasswordChange.model_validate(await self._transport.post("password", body))
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
        **options: Unpack["SessionOptions"],
    ) -> "AsyncSession":
        """Create a session that runs Python functions on nodes of a pool.

        Open the session with `async with`. `nodes` is a number or a (minimum, maximum) pair, and
        `start_timeout` is in seconds. SessionOptions describes the other options.
        """
        from berth.client.aio.session import AsyncSession
        from berth.client.sessions.options import build_options

        return AsyncSession(
            self._transport, build_options(pool, nodes, self.settings.project, options),
            pool=self.node_pools.get, start_timeout=start_timeout, sleep=self._sleep,
        )  # fmt: skip
