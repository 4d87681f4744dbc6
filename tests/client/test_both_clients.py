"""Behaviour of both clients, the synchronous and the asynchronous one."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from berth.client import AsyncClient, Client, Conflict, NotFound, Unreachable
from berth.client.aio.session import AsyncSession
from berth.client.sync.session import Session
from tests.client.desk import HERE, Desk, page, problem, workload

Asked = Callable[..., Any]  # (desk, "workloads.get", arguments...) -> what it came to; of what yields, a list


class AwaitedDesk(httpx.AsyncBaseTransport):
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self._desk.handle_request(request)


def at_once(desk: Desk, what: str, *given: Any, **named: Any) -> Any:
    with Client(HERE, http=desk, sleep=desk.waits.append) as client:
        part, _, name = what.partition(".")
        found = getattr(getattr(client, part), name)(*given, **named)
        return list(found) if inspect.isgenerator(found) else found


def awaited(desk: Desk, what: str, *given: Any, **named: Any) -> Any:
    async def sleep(seconds: float) -> None:
        desk.waits.append(seconds)

    async def main() -> Any:
        async with AsyncClient(HERE, http=AwaitedDesk(desk), sleep=sleep) as client:
            part, _, name = what.partition(".")
            found = getattr(getattr(client, part), name)(*given, **named)
            return [each async for each in found] if inspect.isasyncgen(found) else await found

    return asyncio.run(main())


@pytest.fixture(params=[at_once, awaited])
def ask(request: pytest.FixtureRequest) -> Asked:
    return request.param


def public(owner: type) -> dict[str, Callable[..., Any]]:
    return {name: each for name, each in vars(owner).items() if not name.startswith("_") and callable(each)}


def parts(client: object) -> dict[str, object]:
    return {
        name: each for name, each in vars(client).items() if not name.startswith("_") and name != "settings"
    }


def asked_for(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Its parameters by name, kind and default; under asyncio only what it gives differs."""
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


def both() -> tuple[Client, AsyncClient]:
    return Client(HERE, http=Desk(page([]))), AsyncClient(HERE, http=AwaitedDesk(Desk(page([]))))


def test_both_clients_have_the_same_parts_methods_and_parameters() -> None:
    plain, awaitable = both()
    assert parts(plain).keys() == parts(awaitable).keys()
    pairs = [(type(plain), type(awaitable)), (Session, AsyncSession)]
    pairs += [(type(part), type(parts(awaitable)[name])) for name, part in parts(plain).items()]
    for one, other in pairs:
        assert public(one).keys() == public(other).keys()
        for name, method in public(one).items():
            assert asked_for(public(other)[name]) == asked_for(method), f"{one.__name__}.{name}"


def test_a_link_to_a_port_is_asked_for_anew_with_every_call(ask: Asked) -> None:
    told = {"url": "https://apps.example/open/abc", "port": "notebook", "expires_at": "2026-01-01T00:01:00Z"}
    desk = Desk(httpx.Response(201, json=told))
    links = [ask(desk, "workloads.link_to_port", "w-1", "notebook") for _ in range(2)]
    assert [link.url for link in links] == [told["url"]] * 2
    assert desk.asked == ["POST /api/v1/workloads/w-1/ports/notebook/link"] * 2
    first, second = (request.headers["Idempotency-Key"] for request in desk.requests)
    assert first != second


def test_a_port_that_is_not_there_is_refused_with_its_name(ask: Asked) -> None:
    with pytest.raises(NotFound, match="no port named lab"):
        ask(Desk(problem(404, detail="There is no port named lab.")), "workloads.link_to_port", "w-1", "lab")
    with pytest.raises(Conflict, match="not running"):
        ask(Desk(problem(409, detail="It is not running.")), "workloads.link_to_port", "w-1", "lab")


def test_evictions_of_a_workload_are_read_to_the_end(ask: Asked) -> None:
    row = {
        "id": 1, "at": "2026-01-01T00:00:00Z", "kind": "reclaim", "workload": workload()["id"],
        "workload_name": "train", "project": "vision", "gpus": 4, "summary": "vision/train was reclaimed.",
    }  # fmt: skip
    desk = Desk(page([row], "more"), page([{**row, "id": 2}]))
    assert [each.id for each in ask(desk, "workloads.evictions", "w-1")] == [1, 2]
    assert desk.requests[1].url.params["cursor"] == "more"


def test_a_log_is_searched_answer_by_answer_up_to_a_limit(ask: Asked) -> None:
    def found(*lines: int, following: str | None) -> httpx.Response:
        items = [{"line": n, "offset": n * 10, "text": f"loss {n}"} for n in lines]
        rest = {"pod": "p", "run": 1, "matches": len(items), "size": 100, "searched_bytes": 100}
        return httpx.Response(200, json={"items": items, "next": following, **rest})

    desk = Desk(found(1, 2, following="more"), found(3, following="more"), found(4, following=None))
    pieces = ask(desk, "workloads.search_log", "w-1", "loss", around=1, limit=3)
    assert [line.line for piece in pieces for line in piece.items] == [1, 2, 3]
    assert [request.url.params["limit"] for request in desk.requests] == ["3", "1"]
    assert desk.requests[1].url.params["cursor"] == "more"


def test_a_log_is_followed_until_it_ends_and_a_refusal_is_told(ask: Asked) -> None:
    desk = Desk(httpx.Response(200, content=b"epoch 1\nepoch 2\n"))
    assert b"".join(ask(desk, "workloads.log_stream", "w-1", offset=5)) == b"epoch 1\nepoch 2\n"
    assert dict(desk.requests[0].url.params) == {"offset": "5", "follow": "true"}
    with pytest.raises(NotFound, match="no such workload"):
        ask(Desk(problem(404, detail="There is no such workload.")), "workloads.log_stream", "w-1")
    with pytest.raises(Unreachable, match="connection refused"):
        ask(Desk(httpx.ConnectError("connection refused")), "workloads.log_stream", "w-1")
