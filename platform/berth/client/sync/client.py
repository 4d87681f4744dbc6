# Generated from berth/client/aio/client.py by `python -m berth.client.generate`; do not edit.
"""Asynchronous client for a server's REST API."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import httpx
from typing_extensions import Self, Unpack

from berth.client.config import Settings, load_settings
from berth.client.models.people import Identity, PasswordChange
from berth.client.retry import RetryPolicy
from berth.client.sync.arrays import Arrays
from berth.client.sync.history import Audit, Cycles, Events, Evictions
from berth.client.sync.people import Members, Tokens, Users
from berth.client.sync.pools import NodePools, Nodes, Queues
from berth.client.sync.services import Services
from berth.client.sync.subscriptions import Subscriptions
from berth.client.sync.templates import Templates
from berth.client.sync.tenants import Departments, Projects, Quotas, Secrets
from berth.client.sync.transport import Transport
from berth.client.sync.usage import Budgets, Usage, Utilization
from berth.client.sync.workloads import Workloads

if TYPE_CHECKING:
    from berth.client.sessions.options import SessionOptions
    from berth.client.sync.session import Session


class Client:
    """Client for the REST API of one server, as one user. Close it, or use it with `with`.

    By default, the address and the token come from the environment or from the file that `berth login` wrote.
    """

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
        self.workloads = Workloads(self._transport)
        self.arrays = Arrays(self._transport)
        self.events = Events(self._transport)
        self.evictions = Evictions(self._transport)
        self.cycles = Cycles(self._transport)
        self.audit = Audit(self._transport)
        self.departments = Departments(self._transport)
        self.projects = Projects(self._transport)
        self.quotas = Quotas(self._transport)
        self.secrets = Secrets(self._transport)
        self.queues = Queues(self._transport)
        self.node_pools = NodePools(self._transport)
        self.nodes = Nodes(self._transport)
        self.services = Services(self._transport)
        self.usage = Usage(self._transport)
        self.utilization = Utilization(self._transport)
        self.budgets = Budgets(self._transport)
        self.subscriptions = Subscriptions(self._transport)
        self.templates = Templates(self._transport)
        self.tokens = Tokens(self._transport)
        self.members = Members(self._transport)
        self.users = Users(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def whoami(self) -> Identity:
        return Identity.model_validate(self._transport.get("whoami"))

    def sign_in(self, username: str, password: str) -> str:
        """Return a new token for this user. This client continues to use its own token."""
        response = self._transport.post("login", {"username": username, "password": password})
        return str(response["token"])

    def change_password(self, current: str, new: str, *, revoke_tokens: bool = False) -> PasswordChange:
        """Change your password, which revokes all tokens created by sign-in.

        With `revoke_tokens`, all your other tokens are revoked too. A client that used a token created by
        sign-in continues with the new token in the response.
        """
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
        """Create a session that runs Python functions on nodes of a pool; open it with `with`.

        `nodes` is a number or a (minimum, maximum) pair; `start_timeout` is in seconds. SessionOptions
        describes the other options.
        """
        from berth.client.sessions.options import build_options
        from berth.client.sync.session import Session

        return Session(
            self._transport, build_options(pool, nodes, self.settings.project, options),
            pool=self.node_pools.get, start_timeout=start_timeout, sleep=self._sleep,
        )  # fmt: skip
