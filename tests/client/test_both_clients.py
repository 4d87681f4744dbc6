"""Tests that the synchronous and asynchronous clients behave identically."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from berth.client import AsyncClient, Client, Conflict, NotFound, Unreachable
from berth.client.aio.session import AsyncSession
from berth.client.sync.session import Session
from tests.client.stub_server import HERE, StubServer, page, problem, workload

# (server, "workloads.get", arguments...) -> the result, or a list if the method is a generator
CallClient = Callable[..., Any]


class AsyncStubServer(httpx.AsyncBaseTransport):
    def __init__(self, server: StubServer) -> None:
        self._server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self._server.handle_request(request)


def call_sync(server: StubServer, method: str, *arguments: Any, **named: Any) -> Any:
    with Client(HERE, http=server, sleep=server.waits.append) as client:
        part, _, name = method.partition(".")
        result = getattr(getattr(client, part), name)(*arguments, **named)
        return list(result) if inspect.isgenerator(result) else result


def call_async(server: StubServer, method: str, *arguments: Any, **named: Any) -> Any:
    async def sleep(seconds: float) -> None:
        server.waits.append(seconds)

    async def main() -> Any:
        async with AsyncClient(HERE, http=AsyncStubServer(server), sleep=sleep) as client:
            part, _, name = method.partition(".")
            result = getattr(getattr(client, part), name)(*arguments, **named)
            return [item async for item in result] if inspect.isasyncgen(result) else await result

    return asyncio.run(main())


@pytest.fixture(params=[call_sync, call_async])
def call(request: pytest.FixtureRequest) -> CallClient:
    return request.param


def public_methods(owner: type) -> dict[str, Callable[..., Any]]:
    return {name: each for name, each in vars(owner).items() if not name.startswith("_") and callable(each)}


def client_parts(client: object) -> dict[str, object]:
    return {
        name: each for name, each in vars(client).items() if not name.startswith("_") and name != "settings"
    }


def parameters_of(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Return the name, kind and default of each parameter."""
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(method).parameters.values()
    ]


def build_both_clients() -> tuple[Client, AsyncClient]:
    return Client(HERE, http=StubServer(page([]))), AsyncClient(
        HERE, http=AsyncStubServer(StubServer(page([])))
    )


def test_both_clients_have_the_same_methods_and_parameters() -> None:
    plain, awaitable = build_both_clients()
    assert client_parts(plain).keys() == client_parts(awaitable).keys()
    pairs: list[tuple[type, type]] = [(type(plain), type(awaitable)), (Session, AsyncSession)]
    pairs += [(type(part), type(client_parts(awaitable)[name])) for name, part in client_parts(plain).items()]
    for one, other in pairs:
        assert public_methods(one).keys() == public_methods(other).keys()
        for name, method in public_methods(one).items():
            assert parameters_of(public_methods(other)[name]) == parameters_of(method), (
                f"{one.__name__}.{name}"
            )


def test_every_call_creates_a_new_port_link(call: CallClient) -> None:
    link_fields = {
        "url": "https://apps.example/open/abc",
        "port": "notebook",
        "expires_at": "2026-01-01T00:01:00Z",
    }
    server = StubServer(httpx.Response(201, json=link_fields))
    links = [call(server, "workloads.create_port_link", "w-1", "notebook") for _ in range(2)]
    assert [link.url for link in links] == [link_fields["url"]] * 2
    assert server.calls == ["POST /api/v1/workloads/w-1/ports/notebook/link"] * 2
    first, second = (request.headers["Idempotency-Key"] for request in server.requests)
    assert first != second


def test_port_link_for_a_missing_port_or_pending_workload_is_rejected(call: CallClient) -> None:
    with pytest.raises(NotFound, match="no port named lab"):
        call(
            StubServer(problem(404, detail="There is no port named lab.")),
            "workloads.create_port_link",
            "w-1",
            "lab",
        )
    with pytest.raises(Conflict, match="not running"):
        call(
            StubServer(problem(409, detail="It is not running.")), "workloads.create_port_link", "w-1", "lab"
        )


def test_eviction_list_reads_every_page(call: CallClient) -> None:
    row = {
        "id": 1, "at": "2026-01-01T00:00:00Z", "kind": "reclaim", "workload": workload()["id"],
        "workload_name": "train", "project": "vision", "gpus": 4, "summary": "vision/train was reclaimed.",
    }  # fmt: skip
    server = StubServer(page([row], "more"), page([{**row, "id": 2}]))
    assert [eviction.id for eviction in call(server, "workloads.evictions", "w-1")] == [1, 2]
    assert server.requests[1].url.params["cursor"] == "more"


def test_log_search_reads_pages_up_to_the_limit(call: CallClient) -> None:
    def response(*lines: int, following: str | None) -> httpx.Response:
        items = [{"line": n, "offset": n * 10, "text": f"loss {n}"} for n in lines]
        rest = {"pod": "p", "run": 1, "matches": len(items), "size": 100, "searched_bytes": 100}
        return httpx.Response(200, json={"items": items, "next": following, **rest})

    server = StubServer(
        response(1, 2, following="more"), response(3, following="more"), response(4, following=None)
    )
    pieces = call(server, "workloads.search_log", "w-1", "loss", around=1, limit=3)
    assert [line.line for piece in pieces for line in piece.items] == [1, 2, 3]
    assert [request.url.params["limit"] for request in server.requests] == ["3", "1"]
    assert server.requests[1].url.params["cursor"] == "more"


def test_log_stream_ends_at_the_end_of_the_log_or_raises_the_error(call: CallClient) -> None:
    server = StubServer(httpx.Response(200, content=b"epoch 1\nepoch 2\n"))
    assert b"".join(call(server, "workloads.log_stream", "w-1", offset=5)) == b"epoch 1\nepoch 2\n"
    assert dict(server.requests[0].url.params) == {"offset": "5", "follow": "true"}
    with pytest.raises(NotFound, match="no such workload"):
        call(StubServer(problem(404, detail="There is no such workload.")), "workloads.log_stream", "w-1")
    with pytest.raises(Unreachable, match="connection refused"):
        call(StubServer(httpx.ConnectError("connection refused")), "workloads.log_stream", "w-1")
