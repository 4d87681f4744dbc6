# Generated from berth/client/aio/session.py by `python -m berth.client.generate`; do not edit.
"""Sessions that run Python functions on the nodes of a pool."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from typing_extensions import Self

from berth.client.errors import ClientError, SessionEnded, SessionError
from berth.client.models.pools import NodePool
from berth.client.models.sessions import SessionState
from berth.client.sessions import protocol
from berth.client.sessions.calls import PendingCalls
from berth.client.sessions.options import Options, plugin_context
from berth.client.sessions.payload import pickle_call
from berth.client.sync.background import (
    BackgroundTasks,
    ResultFuture,
    iterate_results,
    sleep,
    thread_safe_session,
    to_result_future,
)
from berth.client.sync.transport import Transport
from pools.plugins.contexts import Hook, HookContexts

P = ParamSpec("P")
T = TypeVar("T")
POLL_SECONDS, KEEP_ALIVE_SECONDS = 0.2, 5.0


class Session:
    """Python session on nodes of a pool, for use with `with`.

    Entering the block waits for nodes. Leaving it waits for outstanding calls, unless the block raised an
    exception.
    """

    def __init__(
        self,
        transport: Transport,
        options: Options,
        *,
        pool: Callable[[str], NodePool],
        start_timeout: float | None = None,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self._transport, self._options, self._pool = transport, options, pool
        self._start_timeout, self._sleep = start_timeout, sleep
        self._calls = PendingCalls()
        self._background = BackgroundTasks()
        self._plugins = HookContexts(Hook.AROUND_CLIENT)
        self._state = SessionState(id="", name="")
        self._after = 0

    def __enter__(self) -> Self:
        pools = self._options.pools
        context = plugin_context(self._options, self._pool(pools[0]) if len(pools) == 1 else None)
        opened = self._transport.post("sessions", self._options.body())
        self._state = SessionState.model_validate(opened)
        try:
            self._wait_for_nodes()
            self._calls.changed = self._background.notify
            self._background.start(self._send_calls, self._receive_results)
            self._plugins.enter(context.plugins, self, context.cluster)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            while error is None:
                version = self._background.version
                if not self._calls.outstanding_count:
                    break
                self._background.wait(version, 1.0)
            self._plugins.leave()
        finally:
            self._end()

    @property
    def id(self) -> str:
        """Session ID, which is also the ID of the session's workload."""
        return self._state.id

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def concurrency(self) -> int:
        """Number of concurrent calls per node."""
        return self._state.slots

    @property
    def last_ready_nodes(self) -> int:
        """Number of ready nodes when the state was last fetched."""
        return len(self._state.nodes)

    def state(self) -> SessionState:
        """Return the current state, including the nodes that accept calls."""
        self._state = SessionState.model_validate(self._transport.get(f"sessions/{self.id}"))
        return self._state

    def ready_nodes(self) -> int:
        """Return the number of nodes that currently accept calls."""
        self.state()
        return self.last_ready_nodes

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> ResultFuture[T]:
        """Run a function on the next free node. NotPicklable and CallTooLarge are raised immediately."""
        return to_result_future(self.call(function, args, kwargs))

    def map(
        self, function: Callable[..., T], /, *iterables: Iterable[Any], timeout: float | None = None
    ) -> Iterator[T]:
        """Submit all calls immediately and yield their results in the order of the arguments."""
        return iterate_results(
            [self.submit(function, *args) for args in zip(*iterables, strict=False)], timeout
        )

    def broadcast(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> ResultFuture[list[T]]:
        """Run a function once on every node, and return the results in node order.

        Nodes that join or restart later run the function before they accept calls.
        """
        return to_result_future(self.call(function, args, kwargs, everywhere=True))

    def parallel(self) -> AbstractContextManager[object]:
        """Return a context that runs joblib's `Parallel(n_jobs=-1)` on this session's nodes."""
        from berth.client.sessions.parallel import use_as_parallel_backend

        return use_as_parallel_backend(thread_safe_session(self))

    def call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        everywhere: bool = False,
    ) -> Future[Any]:
        """Queue a call and return its future, which may complete in another thread."""
        if not self._background.is_running:
            raise SessionError("The session is not open. Use `with` to open it.")
        payload = pickle_call(function, args, kwargs or {}, self._state.call_bytes_max)
        return self._calls.add(payload, everywhere=everywhere)

    def _wait_for_nodes(self) -> None:
        needed = self._options.min_nodes
        began = last_keep_alive = time.monotonic()
        progress = protocol.StartProgress()
        while True:
            state = self.state()
            if state.has_ended:
                raise state.ended_error()
            if len(state.nodes) >= needed:
                return
            now = time.monotonic()
            if self._start_timeout is not None and now - began > self._start_timeout:
                raise state.start_timeout_error(needed, self._start_timeout)
            progress.report(state, now - began)
            if now - last_keep_alive > KEEP_ALIVE_SECONDS:  # otherwise, the idle timeout ends the session
                self._transport.execute("GET", f"sessions/{self.id}/results")
                last_keep_alive = now
            self._sleep(POLL_SECONDS)

    def _send_calls(self) -> None:
        self._repeat(self._send_batch)

    def _receive_results(self) -> None:
        self._repeat(self._receive_batch)

    def _repeat(self, step: Callable[[], bool]) -> None:
        """Repeat a step until the session ends. The step returns False if there was no work."""
        outage = protocol.Outage()
        while self._background.is_running and self._calls.fatal_error is None:
            version = self._background.version
            try:
                worked = step()
                outage.clear()
            except ClientError as error:
                if outage.record_error(error, time.monotonic()):
                    self._calls.fail(protocol.session_error(error))
                    return
                sleep(protocol.RETRY_SECONDS)
                continue
            except Exception as error:  # report every error, which would otherwise be lost
                self._calls.fail(error)
                return
            if not worked:
                self._background.wait(version, 0.5)

    def _send_batch(self) -> bool:
        dropped = self._calls.take_cancelled_calls()
        if dropped:
            self._transport.post(f"sessions/{self.id}/calls/drop", protocol.cancelled_calls_body(dropped))
        batch = self._calls.take_batch()
        if not batch:
            return bool(dropped)
        try:
            response = self._transport.execute(
                "POST", f"sessions/{self.id}/calls", content=protocol.calls_body(batch),
                headers=protocol.FRAME_HEADERS, is_idempotent=True,
            )  # fmt: skip
        except ClientError as error:
            self._calls.requeue(batch)
            if not protocol.is_retryable(error):
                raise
            sleep(protocol.RETRY_SECONDS)
            return True
        self._calls.set_broadcast_nodes(response.json()["broadcasts"])
        return True

    def _receive_batch(self) -> bool:
        if not self._calls.outstanding_count:
            return False
        if self._calls.outstanding_count > protocol.BULK_THRESHOLD:
            sleep(protocol.BULK_DELAY_SECONDS)
        params = {"after": self._after, "wait": protocol.LONG_POLL_SECONDS}
        response = self._transport.execute("GET", f"sessions/{self.id}/results", params=params)
        self._after = protocol.handle_results(self._calls, response.content, self._after)
        return True

    def _end(self) -> None:
        self._calls.cancel_all()
        try:
            with contextlib.suppress(ClientError):
                self._transport.post(f"sessions/{self.id}/end", {})
        finally:
            self._background.stop()
            self._calls.fail(SessionEnded(f"The session {self.name} was closed."))
