"""The synchronous client of one server."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import httpx

from berth.client.answers import Identity, PasswordChanged
from berth.client.config import Settings, load_settings
from berth.client.history import Audit, Cycles, Events, Evictions
from berth.client.line import Lines
from berth.client.machines import NodePools, Nodes
from berth.client.people import Members, Tokens, Users, change_password, identity, sign_in
from berth.client.retry import Patience
from berth.client.services import Services
from berth.client.subscriptions import Subscriptions
from berth.client.templates import Templates
from berth.client.tenants import Departments, Projects, Quotas
from berth.client.transport import Transport
from berth.client.usage import Budgets, Usage
from berth.client.use import Uses
from berth.client.workloads import Workloads

if TYPE_CHECKING:
    from berth.client.sessions.options import Asked
    from berth.client.sessions.session import Session


class Client:
    """One server, one person. Close it, or use it in a `with`.

    Without settings, the address and token come from the environment or from the file `berth login` wrote.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        http: httpx.BaseTransport | None = None,
        patience: Patience | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings or load_settings()
        self._sleep = sleep
        self._transport = Transport(self.settings, http=http, patience=patience, sleep=sleep)
        self.workloads = Workloads(self._transport, sleep)
        self.events = Events(self._transport)
        self.evictions = Evictions(self._transport)
        self.cycles = Cycles(self._transport)
        self.audit = Audit(self._transport)
        self.departments = Departments(self._transport)
        self.projects = Projects(self._transport)
        self.quotas = Quotas(self._transport)
        self.lines = Lines(self._transport)
        self.node_pools = NodePools(self._transport)
        self.nodes = Nodes(self._transport)
        self.services = Services(self._transport, sleep)
        self.usage = Usage(self._transport)
        self.use = Uses(self._transport)
        self.budgets = Budgets(self._transport)
        self.subscriptions = Subscriptions(self._transport)
        self.templates = Templates(self._transport)
        self.tokens = Tokens(self._transport)
        self.members = Members(self._transport)
        self.users = Users(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def whoami(self) -> Identity:
        return identity(self._transport)

    def sign_in(self, username: str, password: str) -> str:
        """A token for this person; this client goes on with what it was opened with."""
        return sign_in(self._transport, username, password)

    def change_password(self, current: str, new: str, *, revoke_tokens: bool = False) -> PasswordChanged:
        """Change your password. Tokens created by sign-in end; `revoke_tokens` revokes all others as well.
        Where this client uses a token created by sign-in, it goes on with the token of the answer."""
        changed = change_password(self._transport, current, new, revoke_tokens)
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
    ) -> "Session":
        """Nodes of a pool that run Python functions; open it with `with`. `nodes` is a number, or the least
        and the most; what else may be asked for stands with `Asked`."""
        from berth.client.sessions.options import options_of
        from berth.client.sessions.session import Session

        options = options_of(pool, nodes, self.settings.project, asked)
        return Session(
            self._transport, options, pool=self.node_pools.get, start_timeout=start_timeout,
            sleep=self._sleep,
        )  # fmt: skip
