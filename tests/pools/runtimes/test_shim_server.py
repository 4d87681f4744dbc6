"""Tests for the process that forks the shims of local pods: crashes, and what shims inherit."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pools.runtimes import shims
from pools.runtimes.base import RuntimeFailure
from pools.runtimes.shim.channels.listener import SOCKET
from pools.runtimes.shim.enclosure.prepared import FILE
from pools.runtimes.shim.processes import children, is_running, process_ids
from pools.runtimes.shim.server import SPARES
from tests.contracts.pods import LocalStage, ended, kill, order, poll_until, running
from tests.pools.runtimes.test_local_runtime import KILL_STARTER, start_in_another_process
from tests.support.open_files import open_files

SECRET = "correct-horse-battery-staple"
WITHOUT_FORK = """import os
def fork():
    raise BlockingIOError
os.fork = fork
"""
LISTENING = "00010000"  # flags in /proc/net/unix
LIST_FILES = "ls -l /proc/self/fd | sed -n 's/.* -> //p'"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LocalStage]:
    stage = LocalStage(tmp_path / "runtime")
    yield stage
    stage.sweep()


def server(stage: LocalStage) -> int:
    pid = stage.runtime._starter.server_pid
    assert pid is not None
    return pid


def shim(stage: LocalStage, pod_id: str) -> int:
    running(stage.runtime, pod_id)
    pid = stage.runtime._pod_dir(pod_id).shim_pid()
    assert pid
    return pid


def sockets(pid: int) -> set[str]:
    return {file for file in open_files(pid) if file.startswith("socket:")}


def channel_sockets() -> set[str]:
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return {f"socket:[{row[6]}]" for row in rows if row[3] == LISTENING and row[-1].endswith(f"/{SOCKET}")}


def is_only_the_channel(sockets: set[str]) -> bool:
    return len(sockets) == 1 and sockets <= channel_sockets()


def memory(pid: int) -> bytes:
    """Return the writable memory of a process."""
    ranges = re.findall(r"^(\w+)-(\w+) rw", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)
    with Path(f"/proc/{pid}/mem").open("rb") as file:
        parts = []
        for begin, end in ranges:
            with suppress(OSError):  # the process has released this range
                file.seek(int(begin, 16))
                parts.append(file.read(int(end, 16) - int(begin, 16)))
    return b"".join(parts)


def servers(root: Path) -> list[int]:
    """Return the fork servers of this runtime.

    Shims have the same command line. Unlike fork servers, they usually have only one socket, for their pod's
    channels.
    """
    pids = []
    for pid in process_ids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if os.fsencode(root) in command and sockets(pid) - channel_sockets():
                pids.append(pid)
        except OSError:
            continue
    return pids


# --- what shims inherit


def test_shim_inherits_no_open_files_or_environment_variables_from_the_runtime(
    stage: LocalStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgres://{SECRET}")
    (tmp_path / "secret").write_text(SECRET)
    with (tmp_path / "secret").open() as file:
        os.set_inheritable(file.fileno(), True)
        for pod_id in ("p-1", "p-2"):
            stage.runtime.start(stage.long(pod_id))
        for pid in (server(stage), shim(stage, "p-1"), shim(stage, "p-2")):
            assert str(tmp_path / "secret") not in open_files(pid)
            assert SECRET.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_shim_and_pod_inherit_no_open_files_from_other_pods(stage: LocalStage) -> None:
    stage.runtime.start(stage.long("p-1"))
    first = shim(stage, "p-1")
    poll_until(lambda: sockets(first) & channel_sockets())
    stage.runtime.start(stage.long("p-2"))
    second = shim(stage, "p-2")
    assert any("/p-2/" in file for file in open_files(second))
    assert not [file for file in open_files(second) if "/p-1/" in file]
    own = poll_until(lambda: sockets(second), is_only_the_channel)  # a shim that wakes listeners has one more
    assert not own & sockets(first)
    stage.runtime.start(order("p-3", "sh", "-c", LIST_FILES))
    ended(stage.runtime, "p-3")
    files = stage.runtime.read_log("p-3", 0, 10_000).data.decode().split()
    assert {"/dev/null", str(stage.root / "pods/p-3/log")} <= set(files)
    assert not [file for file in files if file.startswith("socket:") or "/p-1/" in file or "/p-2/" in file]


def test_server_and_other_shims_never_contain_a_pods_secret(stage: LocalStage) -> None:
    command = ("sh", "-c", f'[ "$PASSWORD" = {SECRET[::-1]} ] && exit 1; sleep 1000')
    stage.runtime.start(order("p-1", *command, secret_env={"PASSWORD": SECRET}, env={"PLAIN": SECRET}))
    shim(stage, "p-1")
    stage.runtime.start(stage.long("p-2"))
    for pid in (server(stage), shim(stage, "p-2")):
        content = memory(pid)
        assert b"pools.runtimes.shim" in content
        assert SECRET.encode() not in content


# --- crashes


def test_pods_survive_the_loss_of_the_shim_server_and_new_pods_start(stage: LocalStage) -> None:
    stage.runtime.start(stage.long("p-1"))
    shim(stage, "p-1")
    first = server(stage)
    kill(first)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # until then it may still accept a request
    stage.runtime.start(stage.long("p-2"))
    shim(stage, "p-2")
    assert server(stage) != first
    for pod_id, code in (("p-1", 7), ("p-2", 8)):
        stage.end_pod(pod_id, code)
        assert ended(stage.runtime, pod_id).exit_code == code


@pytest.mark.heavy
def test_pod_requested_again_after_the_shim_server_was_killed_starts_only_once(stage: LocalStage) -> None:
    stage.runtime.start(order("p-0", "true"))
    ended(stage.runtime, "p-0")
    os.kill(server(stage), signal.SIGSTOP)
    stage.runtime.start(order("p-1", "sh", "-c", "echo ran"))
    kill(server(stage))
    poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"].state == "unknown")
    stage.runtime.start(order("p-1", "sh", "-c", "echo ran"))
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert stage.runtime.read_log("p-1", 0, 100).data == b"ran\n"


@pytest.mark.heavy
def test_unresponsive_shim_server_is_replaced(stage: LocalStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.runtime.start(order("p-0", "true"))
    ended(stage.runtime, "p-0")
    hanging = server(stage)
    os.kill(hanging, signal.SIGSTOP)
    monkeypatch.setattr(shims, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(shims, "END_SECONDS", 0.1)
    stage.runtime.start(order("p-1", "true"))
    poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"].state == "unknown")
    assert not is_running(hanging)
    monkeypatch.undo()
    stage.runtime.start(order("p-1", "true"))
    assert ended(stage.runtime, "p-1").exit_code == 0


def test_pod_starts_without_a_shim_server(stage: LocalStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shims, "SERVER_CODE", "raise SystemExit('broken')")
    stage.runtime.start(order("p-1", "sh", "-c", "exit 3"))
    assert ended(stage.runtime, "p-1").exit_code == 3
    assert stage.runtime._starter.server_pid is None


@pytest.mark.heavy
def test_pod_start_can_be_retried_if_forking_fails(
    stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(shims, "SERVER_CODE", WITHOUT_FORK + shims.SERVER_CODE)
    stage.runtime.start(order("p-1", "sh", "-c", "exit 3"))
    poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"].state == "unknown")
    with monkeypatch.context() as exhausted:
        exhausted.setattr(shims, "_spawn", fail)
        with pytest.raises(RuntimeFailure, match="no more processes"):
            stage.runtime.start(order("p-1", "sh", "-c", "exit 3"))
    for _ in range(2):
        stage.runtime.start(order("p-1", "sh", "-c", "exit 3"))
        poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"].state in ("unknown", "exited"))
    assert ended(stage.runtime, "p-1").exit_code == 3


@pytest.mark.heavy
def test_shim_server_exits_when_the_runtime_is_killed_and_its_pods_continue(stage: LocalStage) -> None:
    starter = start_in_another_process(stage.root, LocalStage.SHELL, after=KILL_STARTER)
    assert starter.wait() == -signal.SIGKILL
    running(stage.runtime, "p-1")
    poll_until(lambda: not servers(stage.root))
    stage.end_pod("p-1", 9)
    assert ended(stage.runtime, "p-1").exit_code == 9


def test_shim_server_exits_when_the_runtime_exits_and_reaps_its_shims(stage: LocalStage) -> None:
    for number in range(5):
        stage.runtime.start(order(f"p-{number}", "true"))
    for number in range(5):
        ended(stage.runtime, f"p-{number}")
    poll_until(lambda: servers(stage.root), lambda running: running == [server(stage)])
    has_spares = (stage.root / FILE).exists()  # spares depend on the isolation of this machine
    spares = SPARES if has_spares else 0
    poll_until(lambda: children(server(stage)), lambda shims: len(shims) == spares)
    stage.restart()
    poll_until(lambda: not servers(stage.root))
