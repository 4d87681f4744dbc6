"""A session under asyncio, whose results can be awaited."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from berth.client.aio.transport import AsyncTransport
from berth.client.errors import ClientError, SessionEnded, SessionError
from berth.client.machine_answers import NodePool
from berth.client.sessions import paths
from berth.client.sessions.ledger import Ledger
from berth.client.sessions.options import Options, around
from berth.client.sessions.payload import closed_call
from pools.plugins.contexts import Hook, HookContexts

P = ParamSpec("P")
T = TypeVar("T")
Submit = Callable[[Callable[..., Any], tuple[Any, ...]], Future[Any]]
POLL_SECONDS, KEEP_SECONDS = 0.2, 5.0


class AsyncSession:
    """As Session, for `async with`. Plugins' contexts and joblib are not made to be awaited: what uses joblib
    runs in a thread (`asyncio.to_thread`)."""

    def __init__(
        self,
        transport: AsyncTransport,
        options: Options,
        *,
        pool: Callable[[str], Awaitable[NodePool]],
        start_timeout: float | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport, self._options, self._pool = transport, options, pool
        self._start_timeout, self._sleep = start_timeout, sleep
        self._ledger = Ledger()
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._around = HookContexts(Hook.AROUND_CLIENT)
        self._state = paths.SessionState(id="")
        self._after = 0

    async def __aenter__(self) -> Self:
        pools = self._options.pools
        beside = around(self._options, await self._pool(pools[0]) if len(pools) == 1 else None)
        opened = await self._transport.post("sessions", self._options.body())
        self._state = paths.SessionState.model_validate(opened)
        try:
            await self._wait_for_nodes()
            self._ledger.changed = self._tells(asyncio.get_running_loop())
            self._tasks = [asyncio.create_task(self._guarded(step)) for step in (self._send, self._receive)]
            self._around.enter(beside.plugins, self, beside.cluster)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            while error is None and self._ledger.outstanding:
                await self._wait_for_news(1.0)
            self._around.leave()
        finally:
            await self._end()

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

    async def state(self) -> paths.SessionState:
        """As it is now, with the nodes that take calls."""
        self._state = paths.SessionState.model_validate(await self._transport.get(f"sessions/{self.id}"))
        return self._state

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run it on the node whose turn it is. Raises NotPicklable or CallTooLarge here, at once."""
        return asyncio.wrap_future(self._call(function, args, kwargs))

    async def map(self, function: Callable[..., T], /, *iterables: Iterable[Any]) -> AsyncIterator[T]:
        """All calls are handed in at once; their results come in the order of the arguments."""
        futures = [self.submit(function, *args) for args in zip(*iterables, strict=False)]
        try:
            for future in futures:
                yield await future
        finally:
            for future in futures:
                future.cancel()

    def broadcast(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[list[T]]:
        """Run it once on every node, as Session.broadcast does."""
        return asyncio.wrap_future(self._call(function, args, kwargs, everywhere=True))

    def parallel(self) -> AbstractContextManager[object]:
        """While it is open, joblib's `Parallel(n_jobs=-1)`, run in a thread, runs on the session's nodes."""
        from berth.client.sessions.parallel import parallel_on

        return parallel_on(FromThreads(self._call, len(self._state.nodes), self.concurrency))

    def _call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        everywhere: bool = False,
    ) -> Future[Any]:
        if not self._tasks:
            raise SessionError("The session is not open: use it in an `async with`.")
        payload = closed_call(function, args, kwargs or {}, self._state.call_bytes_max)
        return self._ledger.add(payload, everywhere=everywhere)

    async def _wait_for_nodes(self) -> None:
        began = kept = time.monotonic()
        waiting = paths.Waiting()
        while True:
            state = await self.state()
            if state.has_ended:
                raise state.end()
            if len(state.nodes) >= self._options.least:
                return
            now = time.monotonic()
            if self._start_timeout is not None and now - began > self._start_timeout:
                raise state.too_late(self._options.least, self._start_timeout)
            waiting.tell(state, now - began)
            if now - kept > KEEP_SECONDS:  # who waits is no client that went away
                await self._transport.ask("GET", f"sessions/{self.id}/results")
                kept = now
            await self._sleep(POLL_SECONDS)

    async def _guarded(self, step: Callable[[], Awaitable[bool]]) -> None:
        """`step` returns whether it did anything; when not, news are waited for."""
        reach = paths.Reach()
        while self._ledger.fatal is None:
            try:
                did = await step()
                reach.regained()
            except ClientError as error:
                if reach.is_lost(error, time.monotonic()):
                    self._ledger.fail(paths.end_of(error))
                    return
                await self._sleep(paths.RETRY_SECONDS)
                continue
            except Exception as error:  # nobody would ever be told otherwise
                self._ledger.fail(error)
                return
            if not did:
                await self._wait_for_news(0.5)

    async def _send(self) -> bool:
        dropped = self._ledger.given_up()
        if dropped:
            await self._transport.post(f"sessions/{self.id}/calls/drop", paths.drop_body(dropped))
        batch = self._ledger.batch()
        if not batch:
            return bool(dropped)
        try:
            answer = await self._transport.ask(
                "POST", f"sessions/{self.id}/calls", content=paths.calls_body(batch), headers=paths.FRAMES,
                repeatable=True,
            )  # fmt: skip
        except ClientError as error:
            self._ledger.unsent(batch)
            if not paths.is_for_later(error):
                raise
            await self._sleep(paths.RETRY_SECONDS)
            return True
        self._ledger.sent(answer.json()["broadcasts"])
        return True

    async def _receive(self) -> bool:
        if not self._ledger.outstanding:
            return False
        if self._ledger.outstanding > paths.FEW:
            await self._sleep(paths.GATHER_SECONDS)
        params = {"after": self._after, "wait": paths.WAIT}
        answer = await self._transport.ask("GET", f"sessions/{self.id}/results", params=params)
        self._after = paths.take_results(self._ledger, answer.content, self._after)
        return True

    def _tells(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """From any thread; a future may be settled after the loop has ended."""

        def tell() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._news.set)

        return tell

    async def _wait_for_news(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()

    async def _end(self) -> None:
        """Nothing of it goes on running; what was not waited for is told so."""
        self._ledger.cancel_all()
        try:
            with contextlib.suppress(ClientError):
                await self._transport.post(f"sessions/{self.id}/end", {})
        finally:
            tasks, self._tasks = self._tasks, []
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ledger.fail(SessionEnded(f"The session {self.name} was closed."))


class FromThreads:
    """What joblib needs, for threads beside the loop."""

    def __init__(self, call: Submit, nodes: int, concurrency: int) -> None:
        self._call, self._nodes, self.concurrency = call, nodes, concurrency

    def ready_nodes(self) -> int:
        return self._nodes

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        return self._call(function, args)
