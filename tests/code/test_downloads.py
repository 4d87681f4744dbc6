"""Tests for the download of code by the shims of local pods, from a server that misbehaves."""

import io
import os
import signal
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pools.runtimes.base import PodCause, PodOrder, PodState
from tests.contracts.pods import LocalStage, ended, order, poll_until

SECRET = "code.secret"
Answer = Callable[[BaseHTTPRequestHandler], None]


class CodeServer:
    """Server that gives each request the next of its answers, and repeats the last one."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [send_archive()]
        self.authorizations: list[str | None] = []
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.authorizations.append(self.headers["Authorization"])
                number = min(len(outer.authorizations), len(outer.answers)) - 1
                outer.answers[number](self)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/code"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop_in_the_middle(self, request: BaseHTTPRequestHandler) -> None:
        """Send half of the archive, then wait."""
        content = archive()
        start_answer(request, 200, len(content))
        request.wfile.write(content[: len(content) // 2])
        self.release.wait(60)

    def close(self) -> None:
        self.release.set()
        self.http.shutdown()
        self.http.server_close()


def archive(**links: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in (("src/train.py", b"print('trained')\n" * 2000), ("empty", b"")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def start_answer(request: BaseHTTPRequestHandler, status: int, size: int, **headers: str) -> None:
    request.send_response(status)
    for name, value in ({"Content-Length": str(size)} | headers).items():
        request.send_header(name, value)
    request.end_headers()


def send_archive(content: bytes | None = None) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        body = archive() if content is None else content
        start_answer(request, 200, len(body))
        request.wfile.write(body)

    return answer


def send_problem(status: int, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        body = b'{"detail": "No code for you."}'
        start_answer(request, status, len(body), **headers)
        request.wfile.write(body)

    return answer


def send_half(request: BaseHTTPRequestHandler) -> None:
    content = archive()
    start_answer(request, 200, len(content))
    request.wfile.write(content[: len(content) // 2])


@pytest.fixture
def server() -> Iterator[CodeServer]:
    server = CodeServer()
    yield server
    server.close()


@pytest.fixture(params=["isolated", "plain"])
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalStage]:
    if request.param == "plain":
        monkeypatch.setenv("BERTH_ISOLATION", "off")
    stage = LocalStage(tmp_path / "runtime")
    yield stage
    stage.sweep()


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStage]:
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    stage = LocalStage(tmp_path / "runtime")
    yield stage
    stage.sweep()


def code_order(server: CodeServer, script: str, **changes: object) -> PodOrder:
    return order("p-1", "sh", "-c", script, code_url=server.url, code_secret=SECRET, **changes)


def log(stage: LocalStage) -> str:
    return stage.runtime.read_log("p-1", 0, 10_000).data.decode()


def test_pod_starts_in_a_writable_copy_that_belongs_to_its_user(
    stage: LocalStage, server: CodeServer
) -> None:
    find = 'find . -type f | sort && find . ! -user "$(id -u)"'
    script = f'test "$PWD" = "$BERTH_CODE_DIR" && touch src/new && {find}'
    stage.runtime.start(code_order(server, script))
    assert ended(stage.runtime, "p-1").exit_code == 0, log(stage)
    assert log(stage).split() == ["./empty", "./src/new", "./src/train.py"]
    assert server.authorizations == [f"Bearer {SECRET}"]


def test_relative_working_directory_is_inside_the_code(plain: LocalStage, server: CodeServer) -> None:
    plain.runtime.start(code_order(server, "ls", working_dir="src"))
    assert ended(plain.runtime, "p-1").exit_code == 0
    assert log(plain) == "train.py\n"


def test_download_is_retried_after_an_overloaded_server_and_a_lost_connection(
    plain: LocalStage, server: CodeServer
) -> None:
    server.answers = [send_problem(503), send_half, send_archive()]
    plain.runtime.start(code_order(server, "wc -l < src/train.py"))
    assert ended(plain.runtime, "p-1").exit_code == 0
    assert log(plain).strip() == "2000"
    assert len(server.authorizations) == 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (send_problem(401), "the server answered 401: No code for you."),
        (send_problem(302, Location="http://127.0.0.1:1/"), "the server answered 302"),
        (send_archive(archive(**{"../escape": "x"})), "the archive contains the path '../escape'"),
    ],
)
def test_pod_fails_to_start_with_the_reason(
    plain: LocalStage, server: CodeServer, answer: Answer, message: str
) -> None:
    server.answers = [answer]
    plain.runtime.start(code_order(server, "true"))
    report = ended(plain.runtime, "p-1")
    assert (report.cause, message in report.message) == (PodCause.START_FAILED, True), report.message
    assert SECRET not in report.message


def test_full_disk_of_the_node_is_reported(plain: LocalStage, server: CodeServer) -> None:
    pod = plain.runtime._pod_dir("p-1")
    pod.create()
    pod.work.rmdir()
    pod.work.symlink_to("/proc")  # no file can be created there
    plain.runtime.start(code_order(server, "true"))
    report = ended(plain.runtime, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert "could not be unpacked" in report.message


def test_pod_can_be_stopped_while_its_code_is_downloaded(plain: LocalStage, server: CodeServer) -> None:
    server.answers = [server.stop_in_the_middle]
    plain.runtime.start(code_order(server, "true"))
    poll_until(lambda: server.authorizations)
    assert plain.runtime.get_reports(["p-1"])["p-1"].state == PodState.STARTING
    plain.runtime.stop("p-1", 5)
    report = ended(plain.runtime, "p-1")
    assert (report.cause, report.exit_code) == (PodCause.STOPPED, None)


def test_code_is_downloaded_again_after_the_shim_and_the_scheduler_were_killed(
    plain: LocalStage, server: CodeServer
) -> None:
    server.answers = [server.stop_in_the_middle, send_archive()]
    sent = code_order(server, "find . -type f | sort")
    plain.runtime.start(sent)
    work = plain.root / "pods" / "p-1" / "work" / "code"
    poll_until(work.exists)
    plain.restart()
    os.kill(poll_until(lambda: plain.runtime._pod_dir("p-1").shim_pid() or 0), signal.SIGKILL)
    poll_until(lambda: plain.runtime.get_reports(["p-1"])["p-1"].state == PodState.UNKNOWN)
    plain.runtime.start(sent)
    assert ended(plain.runtime, "p-1").exit_code == 0
    assert log(plain).split() == ["./empty", "./src/train.py"]


def test_secret_is_neither_in_records_nor_in_the_pods_environment(
    plain: LocalStage, server: CodeServer
) -> None:
    plain.runtime.start(code_order(server, "env; ls -R /dev/shm"))
    assert ended(plain.runtime, "p-1").exit_code == 0
    files = [path for path in plain.root.rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
