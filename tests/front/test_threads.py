"""Tests for the threads that run the synchronous code of requests."""

import asyncio
import threading
from typing import Any

from asgiref.sync import sync_to_async

from berth.server.front.threads import IDLE_THREADS_MAX, RequestThreads


class Requests:
    """An application whose requests call synchronous code twice and wait in between."""

    def __init__(self) -> None:
        self.threads: list[set[int]] = []
        self.may_end = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        first = await sync_to_async(threading.get_ident)()
        await self.may_end.wait()
        self.threads.append({first, await sync_to_async(threading.get_ident)()})


async def run_together(app: RequestThreads, requests: Requests, count: int) -> list[int]:
    """Run requests concurrently and return the thread of each request."""
    requests.threads, requests.may_end = [], asyncio.Event()
    tasks = [asyncio.create_task(app({}, receive, send)) for _ in range(count)]
    await asyncio.sleep(0)
    requests.may_end.set()
    await asyncio.gather(*tasks)
    assert all(len(threads) == 1 for threads in requests.threads), "a request has one thread"
    return [thread for threads in requests.threads for thread in threads]


async def receive() -> dict[str, Any]:
    return {"type": "http.request"}


async def send(message: Any) -> None:
    raise AssertionError("the application sends nothing")


async def test_consecutive_requests_use_the_same_thread() -> None:
    requests = Requests()
    app = RequestThreads(requests)
    threads = [(await run_together(app, requests, 1))[0] for _ in range(3)]
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


async def test_concurrent_requests_use_separate_threads() -> None:
    requests = Requests()
    app = RequestThreads(requests)
    count = 3 * IDLE_THREADS_MAX
    assert len(set(await run_together(app, requests, count))) == count
    idle = await run_together(app, requests, IDLE_THREADS_MAX)
    assert len(set(idle)) == IDLE_THREADS_MAX
    assert set(await run_together(app, requests, IDLE_THREADS_MAX)) == set(idle)


async def test_thread_of_an_aborted_request_is_not_reused_until_its_call_ends() -> None:
    started, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    busy: list[int] = []

    def block() -> None:
        busy.append(threading.get_ident())
        loop.call_soon_threadsafe(started.set)
        may_end.wait(300)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await sync_to_async(block if scope["blocks"] else requests.append)(*scope["arguments"])

    requests: list[Any] = []
    app = RequestThreads(application)
    aborted = asyncio.create_task(app({"blocks": True, "arguments": ()}, receive, send))
    await started.wait()
    aborted.cancel()
    await asyncio.wait({aborted})
    async with asyncio.timeout(120):
        await app({"blocks": False, "arguments": ("served",)}, receive, send)
    assert requests == ["served"]
    may_end.set()
