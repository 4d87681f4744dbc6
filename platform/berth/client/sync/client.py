# Generated from berth/client/aio/client.py by `python -m berth.client.generate`; do not edit.
"""Client for a server's REST API."""

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING

import httpx
from typing_extensions import Self, Unpack

from berth.client.config import Settings, load_settings
from berth.client.retry import RetryPolicy
from berth.client.sync.transport import Transport

if TYPE_CHECKING:
    from berth.client.models.people import Identity, PasswordChange
    from berth.client.sessions.options import SessionOptions
    from berth.client.sync.accounts.people import Members, Tokens, Users
    from berth.client.sync.accounts.subscriptions import Subscriptions
    from berth.client.sync.accounts.tenants import (
        Departments,
        Projects,
        QuotaGroups,
        Quotas,
        Secrets,
    )
    from berth.client.sync.history import Audit, Cycles, Events, Evictions
    from berth.client.sync.pools import NodePools, Nodes, Queues
    from berth.client.sync.services import Services
    from berth.client.sync.session import Session
    from berth.client.sync.usage import Budgets, Usage, Utilization
    from berth.client.sync.workloads.arrays import Arrays
    from berth.client.sync.workloads.code import Code
    from berth.client.sync.workloads.outputs import Files, Outputs
    from berth.client.sync.workloads.schedules import Schedules
    from berth.client.sync.workloads.templates import Templates
    from berth.client.sync.workloads.workloads import Workloads

# Import each class on first use, because most commands need only one or two of these slow imports.
RESOURCES = {
    "workloads": "workloads.workloads.Workloads",
    "code": "workloads.code.Code",
    "arrays": "workloads.arrays.Arrays",
    "outputs": "workloads.outputs.Outputs",
    "files": "workloads.outputs.Files",
    "events": "history.Events",
    "evictions": "history.Evictions",
    "cycles": "history.Cycles",
    "audit": "history.Audit",
    "departments": "accounts.tenants.Departments",
    "projects": "accounts.tenants.Projects",
    "quotas": "accounts.tenants.Quotas",
    "quota_groups": "accounts.tenants.QuotaGroups",
    "secrets": "accounts.tenants.Secrets",
    "queues": "pools.Queues",
    "node_pools": "pools.NodePools",
    "nodes": "pools.Nodes",
    "services": "services.Services",
    "usage": "usage.Usage",
    "utilization": "usage.Utilization",
    "budgets": "usage.Budgets",
    "subscriptions": "accounts.subscriptions.Subscriptions",
    "schedules": "workloads.schedules.Schedules",
    "templates": "workloads.templates.Templates",
    "tokens": "accounts.people.Tokens",
    "members": "accounts.people.Members",
    "users": "accounts.people.Users",
}


class Client:
    """Client for one server, authenticated as one user.

    Close it after use, or use `with`. By default, the URL and the token come from the environment or
    from `berth login`.
    """

    workloads: "Workloads"
    code: "Code"
    arrays: "Arrays"
    outputs: "Outputs"
    files: "Files"
    events: "Events"
    evictions: "Evictions"
    cycles: "Cycles"
    audit: "Audit"
    departments: "Departments"
    projects: "Projects"
    quotas: "Quotas"
    quota_groups: "QuotaGroups"
    secrets: "Secrets"
    queues: "Queues"
    node_pools: "NodePools"
    nodes: "Nodes"
    services: "Services"
    usage: "Usage"
    utilization: "Utilization"
    budgets: "Budgets"
    subscriptions: "Subscriptions"
    schedules: "Schedules"
    templates: "Templates"
    tokens: "Tokens"
    members: "Members"
    users: "Users"

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        http: httpx.BaseTransport | None = None,
        retry_policy: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings or load_settings()
        self._sleep = sleep
        self._transport = Transport(self.settings, http=http, retry_policy=retry_policy, sleep=sleep)

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report misspelt attributes

        def __getattr__(self, name: str) -> object:
            if name not in RESOURCES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            module, _, class_name = RESOURCES[name].rpartition(".")
            resource = getattr(import_module(f"berth.client.sync.{module}"), class_name)(self._transport)
            setattr(self, name, resource)
            return resource

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def whoami(self) -> "Identity":
        from berth.client.models.people import Identity

        return Identity.model_validate(self._transport.get("whoami"))

    def sign_in(self, username: str, password: str) -> str:
        """Return a new token for the user, without replacing the client's own token."""
        response = self._transport.post("login", {"username": username, "password": password})
        return str(response["token"])

    def change_password(self, current: str, new: str, *, revoke_tokens: bool = False) -> "PasswordChange":
        """Change your password and revoke your sign-in tokens, except this client's.

        `revoke_tokens` revokes your other tokens too.
        """
        from berth.client.models.people import PasswordChange

        body = {"current_password": current, "new_password": new, "revoke_tokens": revoke_tokens}
        changed = PasswordChange.model_validate(self._transport.post("password", body))
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
    ) -> "Session":
        """Create a session that runs Python functions on nodes of a pool.

        Open the session with `with`. `nodes` is a number or a (minimum, maximum) pair, and
        `start_timeout` is in seconds. SessionOptions describes the other options.
        """
        from berth.client.sessions.options import build_options
        from berth.client.sync.session import Session

        return Session(
            self._transport, build_options(pool, nodes, self.settings.project, options),
            pool=self.node_pools.get, start_timeout=start_timeout, sleep=self._sleep,
        )  # fmt: skip
