"""Tests for sessions whose processes are killed: no call is lost, and no process is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from berth.client import Client, SessionEnded
from berth.client.sync.session import Session
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import ROOT, Installation, until
from tests.journeys.sessions import test_sessions_killed as here

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
cloudpickle.register_pickle_by_value(here)


@pytest.fixture(scope="module")
def terminal(berth: Installation) -> Terminal:
    return sign_in(berth, "dave", berth.home.parent / "dave")


@pytest.fixture(scope="module")
def dave(terminal: Terminal) -> Iterator[Client]:
    with terminal.client() as client:
        yield client


@pytest.fixture
def session(dave: Client) -> Iterator[Session]:
    with dave.session("local", nodes=2, gpus=1, project="vision", max_attempts=5) as session:
        yield session


def wait_for_file(file: str, note: str) -> int:
    """Write the rank to `note`, wait until `file` exists, and return the run."""
    with Path(note).open("a") as out:
        out.write(f"{os.environ['RANK']} ")
    while not Path(file).exists():
        time.sleep(0.05)
    return int(os.environ["BERTH_RUN"])


def start_call(session: Session, tmp_path: Path) -> "Future[int]":
    """Return a call that has started on a node and runs until the file `go` exists."""
    future = session.submit(wait_for_file, str(tmp_path / "go"), str(tmp_path / "note"))
    until((tmp_path / "note").exists)
    return future


def workers(berth: Installation) -> list[int]:
    commands = berth.processes()
    return [pid for pid, line in commands.items() if "runpy.run_module" in line and "shim" not in line]


def test_session_retries_the_call_of_a_killed_worker(
    berth: Installation, session: Session, tmp_path: Path
) -> None:
    future = start_call(session, tmp_path)
    [victim, *_] = workers(berth)
    os.kill(victim, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert future.result(120) in (1, 2)
    # Until the gang has restarted, the session may have only one node, or still count the killed one.
    until(lambda: session.broadcast(lambda: int(os.environ["RANK"])).result(60) == [0, 1])


@pytest.mark.parametrize("part", ["web", "database", "scheduler"])
def test_calls_survive_killing_any_berth_process(
    berth: Installation, session: Session, tmp_path: Path, part: str
) -> None:
    future = start_call(session, tmp_path)
    more = [session.submit(pow, x, 2) for x in range(10)]
    victim = berth.children()[part]
    os.kill(victim, signal.SIGKILL)
    until(lambda: berth.children().get(part) not in (None, victim))
    (tmp_path / "go").touch()
    assert future.result(120) == 1
    assert [call.result(120) for call in more] == [x * x for x in range(10)]
    assert len((tmp_path / "note").read_text().split()) == 1  # the call never started twice


def test_suspended_session_resumes_its_calls(dave: Client, session: Session, tmp_path: Path) -> None:
    future = start_call(session, tmp_path)
    dave.workloads.suspend(session.id)
    until(lambda: dave.workloads.get(session.id).phase == "suspended", 90)
    dave.workloads.resume(session.id)
    (tmp_path / "go").touch()
    assert future.result(120) == 2
    assert future.attempts == 2  # type: ignore[attr-defined]


def test_elastic_session_is_scaled_down_and_finishes_its_calls(
    berth: Installation, dave: Client, tmp_path: Path
) -> None:
    grace = sign_in(berth, "grace", berth.home.parent / "grace")
    go = str(tmp_path / "go")
    with dave.session("local", nodes=4, gpus=2, project="vision"):
        pass  # The pool scales up only for minimum nodes. Now it has four nodes for the next session.
    with dave.session("local", nodes=(1, 4), gpus=2, project="vision", max_attempts=5) as session:
        until(lambda: session.ready_nodes() == 4, 120)
        futures = [session.submit(wait_for_file, go, str(tmp_path / f"note-{n}")) for n in range(4)]
        until(lambda: len(list(tmp_path.glob("note-*"))) == 4)
        # Another department reclaims the GPUs that the session borrows.
        grace.berth("submit", "-f", str(ROOT / "examples" / "main-job" / "ranking.yaml"))
        until(lambda: session.ready_nodes() <= 2, 180)
        (tmp_path / "go").touch()
        assert {future.result(180) for future in futures} == {1}
        assert session.submit(pow, 2, 5).result(60) == 32
        evictions = list(dave.evictions.list(workload=session.id))
    assert {eviction.preemptor_project for eviction in evictions} == {"ads"}


def test_calls_of_a_cancelled_session_fail_with_the_name_of_the_cancelling_user(
    dave: Client, tmp_path: Path
) -> None:
    with dave.session("local", gpus=1, project="vision") as session:
        future = start_call(session, tmp_path)
        dave.workloads.cancel(session.id)
        with pytest.raises(SessionEnded, match="Cancelled by dave"):
            future.result(90)
        with pytest.raises(SessionEnded, match="Cancelled by dave"):
            session.submit(pow, 2, 2).result(60)
    until(lambda: dave.workloads.get(session.id).phase == "cancelled")


CLIENT = """
import os, time
from berth.client import Client
client = Client()
session = client.session("local", gpus=1, project="vision", idle_timeout=5)
session.__enter__()
session.submit(time.sleep, 1000)
print(session.id, flush=True)
time.sleep(1000)
"""


def test_killing_the_client_ends_its_session_and_all_worker_processes(
    berth: Installation, dave: Client, terminal: Terminal
) -> None:
    env: dict[str, Any] = {
        "PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(terminal.config),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
    }  # fmt: skip
    command = [sys.executable, "-c", CLIENT]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        name = client.stdout.readline().strip()
        client.kill()
    until(lambda: dave.workloads.get(name).phase == "completed", 120)
    assert "sent no request for 5 s" in dave.workloads.get(name).message
    until(lambda: not workers(berth))
