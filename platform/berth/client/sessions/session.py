"""A session: submit functions, receive futures."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from berth.client.errors import ClientError, SessionEnded, SessionError
from berth.client.machine_answers import NodePool
from berth.client.sessions import paths
from berth.client.sessions.ledger import Ledger
from berth.client.sessions.options import Options, around
from berth.client.sessions.payload import closed_call
from berth.client.sessions.post import Post
from berth.client.transport import Transport
from pools.plugins.contexts import Hook, HookContexts

P = ParamSpec("P")
T = TypeVar("T")
POLL_SECONDS, KEEP_SECONDS = 0.2, 5.0


class Session:
    """Open it with `with`: it starts when its nodes are there, and ends with the block.

    Leaving the block waits for the calls that are outstanding, unless it is left by an error.
    """

    def __init__(
        self,
        transport: Transport,
        options: Options,
        *,
        pool: Callable[[str], NodePool],
        start_timeout: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport, self._options, self._pool = transport, options, pool
        self._start_timeout, self._sleep = start_timeout, sleep
        self._ledger = Ledger()
        self._post: Post | None = None
        self._around = HookContexts(Hook.AROUND_CLIENT)
        self._state = paths.SessionState(id="")

    def __enter__(self) -> Self:
        pools = self._options.pools
        beside = around(self._options, self._pool(pools[0]) if len(pools) == 1 else None)
        opened = self._transport.post("sessions", self._options.body())
        self._state = paths.SessionState.model_validate(opened)
        try:
            self._wait_for_nodes()
            self._post = Post(self._transport, self.id, self._ledger)
            self._post.start()
            self._around.enter(beside.plugins, self, beside.cluster)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        with ExitStack() as ends:
            ends.callback(self._end)
            if self._post is not None and error is None:
                self._post.wait_until_done()
            self._around.leave()

    @property
    def id(self) -> str:
        """Of the session and of its workload: the same."""
        return self._state.id

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def concurrency(self) -> int:
        """Calls at a time on each node."""
        return self._state.slots

    def state(self) -> paths.SessionState:
        """As it is now, with the nodes that take calls."""
        self._state = paths.SessionState.model_validate(self._transport.get(f"sessions/{self.id}"))
        return self._state

    def ready_nodes(self) -> int:
        """How many nodes take calls now."""
        return len(self.state().nodes)

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run it on the node whose turn it is. Raises NotPicklable or CallTooLarge here, at once."""
        return self._call(function, args, kwargs)

    def map(
        self, function: Callable[..., T], /, *iterables: Iterable[Any], timeout: float | None = None
    ) -> Iterator[T]:
        """All calls are handed in at once; their results come in the order of the arguments."""
        futures = [self.submit(function, *args) for args in zip(*iterables, strict=False)]
        deadline = None if timeout is None else time.monotonic() + timeout
        return _in_order(futures, deadline)

    def broadcast(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[list[T]]:
        """Run it once on every node: the future has the results of those that are ready now, by node. A node
        that joins later, or that starts again, runs it too before it takes other calls."""
        return self._call(function, args, kwargs, everywhere=True)

    def parallel(self) -> AbstractContextManager[object]:
        """While it is open, joblib's `Parallel(n_jobs=-1)` in this process runs on the session's nodes."""
        from berth.client.sessions.parallel import parallel_on

        return parallel_on(self)

    def _call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
        *, everywhere: bool = False,
    ) -> Future[Any]:  # fmt: skip
        if self._post is None:
            raise SessionError("The session is not open: use it in a `with`.")
        payload = closed_call(function, args, kwargs, self._state.call_bytes_max)
        return self._ledger.add(payload, everywhere=everywhere)

    def _wait_for_nodes(self) -> None:
        wanted = self._options.least
        began = kept = time.monotonic()
        waiting = paths.Waiting()
        while True:
            state = self.state()
            if state.has_ended:
                raise state.end()
            if len(state.nodes) >= wanted:
                return
            now = time.monotonic()
            if self._start_timeout is not None and now - began > self._start_timeout:
                raise state.too_late(wanted, self._start_timeout)
            waiting.tell(state, now - began)
            if now - kept > KEEP_SECONDS:  # who waits is no client that went away
                self._transport.ask("GET", f"sessions/{self.id}/results")
                kept = now
            self._sleep(POLL_SECONDS)

    def _end(self) -> None:
        """Nothing of it goes on running; what was not waited for is told so."""
        self._ledger.cancel_all()
        try:
            with contextlib.suppress(ClientError):
                self._transport.post(f"sessions/{self.id}/end", {})
        finally:
            post, self._post = self._post, None
            if post is not None:
                post.stop()
            self._ledger.fail(SessionEnded(f"The session {self.name} was closed."))


def _in_order(futures: Sequence[Future[T]], deadline: float | None) -> Iterator[T]:
    left = list(reversed(futures))
    try:
        while left:
            yield left.pop().result(None if deadline is None else max(0.0, deadline - time.monotonic()))
    finally:
        for future in left:
            future.cancel()
