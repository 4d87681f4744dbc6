"""Tests for code downloads by the shims of local pods from a misbehaving server."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.runtimes.base import PodCause, PodSpec, PodState
from tests.code.code_server import (
    SECRET,
    Answer,
    CodeServer,
    archive,
    send_archive,
    send_half,
    send_problem,
)
from tests.code.small_disk import small_disk
from tests.contracts.pods import LocalStage, ended, files_containing, order, poll_until
from tests.support.certificates import Authority


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
def plain_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStage]:
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    stage = LocalStage(tmp_path / "runtime")
    yield stage
    stage.sweep()


def code_order(server: CodeServer, script: str, **changes: object) -> PodSpec:
    return order("p-1", "sh", "-c", script, code_url=server.url, download_secret=SECRET, **changes)


def log(stage: LocalStage) -> str:
    return stage.runtime.read_log("p-1", 0, 10_000).data.decode()


@pytest.mark.heavy
def test_pod_starts_in_a_writable_copy_of_the_code_owned_by_its_user(
    stage: LocalStage, server: CodeServer
) -> None:
    find = 'find . -type f | sort && find . ! -user "$(id -u)"'
    script = f'test "$PWD" = "$BERTH_CODE_DIR" && touch src/new && {find}'
    stage.runtime.start(code_order(server, script))
    assert ended(stage.runtime, "p-1").exit_code == 0, log(stage)
    assert log(stage).split() == ["./empty", "./src/new", "./src/train.py"]
    assert server.authorizations == [f"Bearer {SECRET}"]


def test_relative_working_directory_is_resolved_inside_the_code_directory(
    plain_stage: LocalStage, server: CodeServer
) -> None:
    plain_stage.runtime.start(code_order(server, "ls", working_dir="src"))
    assert ended(plain_stage.runtime, "p-1").exit_code == 0
    assert log(plain_stage) == "train.py\n"


@pytest.mark.heavy
def test_download_is_retried_after_server_overload_or_a_lost_connection(
    plain_stage: LocalStage, server: CodeServer
) -> None:
    server.answers = [send_problem(503), send_half, send_archive()]
    plain_stage.runtime.start(code_order(server, "wc -l < src/train.py"))
    assert ended(plain_stage.runtime, "p-1").exit_code == 0
    assert log(plain_stage).strip() == "2000"
    assert len(server.authorizations) == 3


@pytest.mark.heavy
def test_interrupted_code_download_fails_with_the_reason_from_the_server(
    plain_stage: LocalStage, server: CodeServer
) -> None:
    server.answers = [send_half, send_problem(409)]
    plain_stage.runtime.start(code_order(server, "true"))
    report = ended(plain_stage.runtime, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert (
        report.message == "the code could not be downloaded: the server responded with 409: No code for you."
    )
    assert server.paths == ["/code", "/code?verify=true"]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (send_problem(401), "the server responded with 401: No code for you."),
        (send_problem(302, Location="http://127.0.0.1:1/"), "the server responded with 302"),
        (send_archive(archive(links={"../escape": "x"})), "the archive contains the unsafe path '../escape'"),
    ],
)
def test_pod_with_a_failed_download_does_not_start_and_reports_the_reason(
    plain_stage: LocalStage, server: CodeServer, answer: Answer, message: str
) -> None:
    server.answers = [answer]
    plain_stage.runtime.start(code_order(server, "true"))
    report = ended(plain_stage.runtime, "p-1")
    assert (report.cause, message in report.message) == (PodCause.START_FAILED, True), report.message
    assert SECRET not in report.message


def test_server_is_verified_with_the_certificates_in_the_pod_spec(
    plain_stage: LocalStage, tmp_path: Path
) -> None:
    trusted, stranger = Authority(tmp_path, "trusted"), Authority(tmp_path, "stranger")
    server = CodeServer(trusted.server("127.0.0.1"))
    try:
        plain_stage.runtime.start(code_order(server, "true", download_ca=trusted.file.read_text()))
        assert ended(plain_stage.runtime, "p-1").exit_code == 0
        requests = len(server.authorizations)
        other = order(
            "p-2", "true", code_url=server.url, download_secret=SECRET, download_ca=stranger.file.read_text()
        )
        plain_stage.runtime.start(other)
        poll_until(
            lambda: "CERTIFICATE_VERIFY_FAILED" in plain_stage.runtime.get_reports(["p-2"])["p-2"].progress
        )
        plain_stage.runtime.stop("p-2", 0)
        assert ended(plain_stage.runtime, "p-2").cause == PodCause.STOPPED
        assert len(server.authorizations) == requests, (
            "the secret is not sent to a server without a trusted certificate"
        )
    finally:
        server.close()


def test_full_disk_on_the_node_is_reported(plain_stage: LocalStage, server: CodeServer) -> None:
    server.answers = [send_archive(archive(lines=20_000))]
    pod = plain_stage.runtime._pod_dir("p-1")
    pod.create()
    with small_disk(pod.work_directory):
        plain_stage.runtime.start(code_order(server, "true"))
        report = ended(plain_stage.runtime, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert "could not be unpacked: No space left on device" in report.message


def test_pod_can_be_stopped_while_its_code_is_downloaded(plain_stage: LocalStage, server: CodeServer) -> None:
    server.answers = [server.stop_in_the_middle]
    plain_stage.runtime.start(code_order(server, "true"))
    poll_until(lambda: server.authorizations)
    assert plain_stage.runtime.get_reports(["p-1"])["p-1"].state == PodState.STARTING
    plain_stage.runtime.stop("p-1", 5)
    report = ended(plain_stage.runtime, "p-1")
    assert (report.cause, report.exit_code) == (PodCause.STOPPED, None)


def test_code_is_downloaded_again_after_the_shim_and_the_scheduler_were_killed(
    plain_stage: LocalStage, server: CodeServer
) -> None:
    server.answers = [server.stop_in_the_middle, send_archive()]
    sent = code_order(server, "find . -type f | sort")
    plain_stage.runtime.start(sent)
    work = plain_stage.root / "pods" / "p-1" / "work" / "code"
    poll_until(work.exists)
    plain_stage.restart()
    os.kill(poll_until(lambda: plain_stage.runtime._pod_dir("p-1").shim_pid() or 0), signal.SIGKILL)
    poll_until(lambda: plain_stage.runtime.get_reports(["p-1"])["p-1"].state == PodState.UNKNOWN)
    plain_stage.runtime.start(sent)
    assert ended(plain_stage.runtime, "p-1").exit_code == 0
    assert log(plain_stage).split() == ["./empty", "./src/train.py"]


def test_secret_is_neither_in_records_nor_in_the_pods_environment(
    plain_stage: LocalStage, server: CodeServer
) -> None:
    plain_stage.runtime.start(code_order(server, "env; ls -R /dev/shm"))
    assert ended(plain_stage.runtime, "p-1").exit_code == 0
    assert files_containing(plain_stage.root, SECRET) == []
