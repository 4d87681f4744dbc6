"""Tests for the web server of `berth up`."""

import asyncio
import signal

import pytest
import uvicorn

from berth.server.up import serve
from berth.server.up.serve import SharedServer


@pytest.fixture
def server() -> SharedServer:
    return SharedServer(uvicorn.Config("none:app", log_config=None))


async def run_until_signal(server: SharedServer) -> None:
    running = asyncio.create_task(server.main_loop())
    while not server.server_state.default_headers:
        await asyncio.sleep(0)
    assert not running.done()
    server.handle_exit(signal.SIGTERM, None)
    async with asyncio.timeout(120):
        await running


async def test_signal_stops_the_server_without_waiting_for_its_next_tick(
    server: SharedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "TICK_SECONDS", 3600.0)
    await run_until_signal(server)


async def test_signal_received_during_startup_stops_the_server(server: SharedServer) -> None:
    server.handle_exit(signal.SIGTERM, None)
    async with asyncio.timeout(120):
        await server.main_loop()


async def test_date_header_of_responses_is_updated(
    server: SharedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "TICK_SECONDS", 0.0)
    running = asyncio.create_task(server.main_loop())
    headers = server.server_state.default_headers = [(b"date", b"yesterday")]
    async with asyncio.timeout(120):
        while server.server_state.default_headers in ([], headers):
            await asyncio.sleep(0)
    server.handle_exit(signal.SIGTERM, None)
    await running
    assert [name for name, _ in server.server_state.default_headers] == [b"date"]
