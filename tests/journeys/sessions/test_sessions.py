"""Tests for sessions with a real server, real pods and real functions."""

import asyncio
import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from joblib import Parallel, delayed

from berth.client import (
    AsyncClient,
    CallFailed,
    CallInterrupted,
    CallTooLarge,
    Client,
    Invalid,
    NotFound,
    NotPicklable,
    RemoteTraceback,
    SessionError,
)
from berth.client.sync.session import Session
from pools.plugins import Plugin
from tests.journeys.command import Terminal
from tests.journeys.installation import ROOT, until
from tests.journeys.sessions import test_sessions as here

pytestmark = pytest.mark.timeout(900)
# Nodes have no copy of this file: its functions are pickled by value.
cloudpickle.register_pickle_by_value(here)


@pytest.fixture(scope="module")
def client(dave_on_shared_berth: Terminal) -> Iterator[Client]:
    with dave_on_shared_berth.client() as client:
        yield client


@pytest.fixture(scope="module")
def session(client: Client) -> Iterator[Session]:
    """Open a session on two nodes, each with two concurrent calls."""
    with client.session("local", nodes=2, gpus=1, project="vision", concurrency=2) as session:
        yield session


def node() -> int:
    return int(os.environ["RANK"])


@pytest.mark.heavy
@pytest.mark.shows("SKY-07")
def test_calls_alternate_between_nodes_and_return_results(session: Session) -> None:
    first = session.submit(node).result(240)
    assert [session.submit(node).result(240) for _ in range(4)] == [1 - first, first, 1 - first, first]


def test_map_keeps_the_order_of_its_arguments(session: Session) -> None:
    assert list(session.map(lambda x, y: x * y, range(20), range(20))) == [x * x for x in range(20)]


@pytest.mark.shows("SKY-08")
def test_broadcast_returns_a_result_per_node_in_order(session: Session) -> None:
    assert session.broadcast(node).result(240) == [0, 1]


def test_remote_error_is_raised_with_its_remote_traceback(session: Session) -> None:
    def raises() -> None:
        empty: dict[str, int] = {}
        empty["nothing there"]

    with pytest.raises(KeyError, match="nothing there") as raised:
        session.submit(raises).result(240)
    assert isinstance(raised.value.__cause__, RemoteTraceback)
    assert 'empty["nothing there"]' in str(raised.value.__cause__)


def test_output_of_functions_appears_in_the_workload_log(session: Session, client: Client) -> None:
    session.broadcast(lambda: print("printed on a node")).result(240)
    until(lambda: b"printed on a node" in client.workloads.log(session.id, pod="worker-1").data)


@pytest.mark.heavy
def test_joblib_runs_on_the_nodes(session: Session) -> None:
    def square(x: int) -> tuple[int, int]:
        return x * x, int(os.environ["RANK"])

    with session.parallel():
        results = Parallel(n_jobs=-1, batch_size=1)(delayed(square)(x) for x in range(20))
    assert [square for square, _ in results] == [x * x for x in range(20)]
    assert {node for _, node in results} == {0, 1}


@pytest.mark.heavy
def test_joblib_error_is_raised_and_the_session_continues(session: Session) -> None:
    def fails(x: int) -> int:
        return 1 // x

    with session.parallel(), pytest.raises(ZeroDivisionError):
        Parallel(n_jobs=-1)(delayed(fails)(x) for x in (1, 0, 2))
    assert session.submit(node).result(240) in (0, 1)


def test_unpicklable_function_or_argument_raises_an_error_before_it_is_sent(session: Session) -> None:
    lock = threading.Lock()

    def holds_a_lock() -> bool:
        return lock.locked()

    with pytest.raises(NotPicklable, match=r"holds_a_lock: the enclosing variable lock .* a _thread.lock"):
        session.submit(holds_a_lock)
    with pytest.raises(NotPicklable, match=r"argument 0\['at'\] cannot be pickled: it is a _io"):
        session.submit(len, {"at": io.TextIOWrapper(io.BytesIO())})
    assert session.submit(node).result(240) in (0, 1)


def test_unpicklable_or_oversized_result_raises_an_error(session: Session) -> None:
    with pytest.raises(CallFailed, match="of type generator, cannot be pickled"):
        session.submit(lambda: (x for x in range(0))).result(240)
    with pytest.raises(CallTooLarge, match="the maximum is 33554432"):
        session.submit(lambda: bytes(33_554_433)).result(240)
    with pytest.raises(CallTooLarge, match="including arguments"):
        session.submit(len, bytes(33_554_433))
    assert session.submit(node).result(240) in (0, 1)


def test_call_in_a_crashing_process_is_retried_and_fails_after_three_attempts(
    session: Session, tmp_path: Path
) -> None:
    def dies_twice() -> str:
        tries = tmp_path / "tries"
        done = len(tries.read_text()) if tries.exists() else 0
        tries.write_text("x" * (done + 1))
        if done < 2:
            os._exit(9)
        return "lived"

    future = session.submit(dies_twice)
    assert future.result(240) == "lived"
    with pytest.raises(
        CallInterrupted, match=r"3 times\. Last reason: the call's process was killed by SIGKILL"
    ):
        session.submit(lambda: os.kill(os.getpid(), 9)).result(240)
    assert session.submit(node).result(240) in (0, 1)


@pytest.mark.heavy
def test_cancelled_future_does_not_affect_the_session(session: Session) -> None:
    futures = [session.submit(node) for _ in range(20)]
    assert futures[-1].cancel()
    assert {future.result(240) for future in futures[:-1]} == {0, 1}


@pytest.mark.heavy
def test_async_client_runs_calls_broadcasts_and_joblib(dave_on_shared_berth: Terminal) -> None:
    async def use() -> list[Any]:
        from berth.client.config import load_settings

        settings = load_settings({"XDG_CONFIG_HOME": str(dave_on_shared_berth.config)})
        async with AsyncClient(settings) as client:
            username = (await client.whoami()).username
            async with client.session("local", gpus=1, project="vision", concurrency=2) as session:
                squares = [x async for x in session.map(lambda x: x * x, range(5))]
                alone = await asyncio.gather(session.submit(node), session.broadcast(node))
                with session.parallel():
                    jobs = await asyncio.to_thread(
                        lambda: Parallel(n_jobs=-1)(delayed(pow)(x, 2) for x in range(5))
                    )
            ended = await client.workloads.get(session.id)
            return [username, squares, alone, jobs, ended.phase in ("stopping", "completed")]

    squares = [0, 1, 4, 9, 16]
    assert asyncio.run(use()) == ["dave", squares, [0, [0]], squares, True]


def test_unknown_plugin_unknown_pool_and_invalid_node_range_are_rejected(client: Client) -> None:
    with pytest.raises(SessionError, match=r"There is no plugin named 'pytorch'\. Available: accelerate, "):
        client.session("local", plugins=["pytorch"])
    with pytest.raises(SessionError, match="The plugin torch is listed twice"):
        client.session("local", plugins=["torch", Plugin.create("torch")])
    with pytest.raises(NotFound, match="There is no node pool named 'cloud'"), client.session("cloud"):
        pytest.fail("the session must not open")
    with (
        pytest.raises(Invalid, match=r"node.min: is above max"),
        client.session("local", nodes=(3, 2), project="vision"),
    ):
        pytest.fail("the session must not open")


@pytest.mark.heavy
def test_documented_quick_start_runs(dave_on_shared_berth: Terminal, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "sdk.md").read_text()
    [program] = re.findall(r"## Quick start.*?```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "quick.py").write_text(program)
    env = {
        "PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(dave_on_shared_berth.config),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
    }  # fmt: skip
    command = [sys.executable, str(tmp_path / "quick.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    one, every, total = done.stdout.splitlines()
    assert one.startswith("hello from node ")
    assert [f"hello from node {node} on" in every for node in (0, 1)] == [True, True]
    assert total == "285"
