"""Tests for the code of workloads in pods of a real cluster."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import parse_kubeconfig
from pools.runtimes.base import PodCause, PodSpec
from projects.code.archive import archive_parts
from tests.code.code_server import SECRET, CodeServer, send_archive, send_half, send_problem
from tests.contracts.kubernetes.cluster import with_shipped_role
from tests.contracts.kubernetes.stage import RealKubernetesStage
from tests.contracts.pods import ended, poll_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

SIZE = 20_000_000  # size of one file in bytes
LONG = "/".join(["a-directory-with-a-long-name"] * 8) + "/data.bin"


@pytest.fixture
def stage(kubeconfig: str, tmp_path: Path) -> Iterator[RealKubernetesStage]:
    stage = RealKubernetesStage(tmp_path / "runtime", parse_kubeconfig(with_shipped_role(kubeconfig)))
    yield stage
    stage.sweep(Api(parse_kubeconfig(kubeconfig)))
    stage.close()


@pytest.fixture
def server() -> Iterator[CodeServer]:
    server = CodeServer()
    yield server
    server.close()


def archive(size: int) -> bytes:
    """Return a code archive as Berth's server sends it, with a file of this size."""
    content = bytes(range(256)) * (size // 256)
    files: list[dict[str, Any]] = [
        {"path": "run.sh", "size": 14, "executable": True},
        {"path": LONG, "size": len(content)},
        {"path": "näme", "size": 0},
        {"path": "src/link", "link": "../run.sh"},
    ]
    return b"".join(archive_parts(files, 1_700_000_000, [[b"echo executed\n"], [content], [], []]))


def code_order(stage: RealKubernetesStage, server: CodeServer, script: str, **changes: object) -> PodSpec:
    values = {"code_url": server.url, "download_secret": SECRET, "cpu_milli": 1000, **changes}
    return stage.order("p-1", "sh", "-c", script, **values)


def progress(stage: RealKubernetesStage) -> str:
    return str(stage.runtime.get_reports(["p-1"])["p-1"].progress)


def log(stage: RealKubernetesStage) -> str:
    return str(stage.runtime.read_log("p-1", 0, 10_000).data.decode())


def test_pod_starts_in_its_copy_of_the_code_without_the_secret(
    stage: RealKubernetesStage, server: CodeServer, kubeconfig: str
) -> None:
    server.answers = [send_archive(archive(SIZE))]
    script = (
        f'test "$PWD" = "$BERTH_CODE_DIR" && sh src/link && ./run.sh && busybox md5sum {LONG} && mkdir new '
        "&& test -f näme && ls -A src .. && env"
    )
    stage.runtime.start(code_order(stage, server, script))
    admin = Api(parse_kubeconfig(kubeconfig))
    pod = admin.get(f"/api/v1/namespaces/{stage.namespace}/pods/p-1")
    secrets = admin.list(f"/api/v1/namespaces/{stage.namespace}/secrets")[0]
    admin.close()
    assert SECRET not in json.dumps([pod, secrets])
    assert ended(stage.runtime, "p-1").exit_code == 0, log(stage)
    lines = log(stage).splitlines()
    digest = hashlib.md5(bytes(range(256)) * (SIZE // 256), usedforsecurity=False).hexdigest()
    assert lines[:3] == ["executed", "executed", f"{digest}  {LONG}"]
    assert lines[3:8] == ["..:", "code", "", "src:", "link"]
    assert SECRET not in "".join(lines)
    assert server.authorizations == [f"Bearer {SECRET}"]


def test_relative_working_directory_is_resolved_inside_the_code_directory(
    stage: RealKubernetesStage, server: CodeServer
) -> None:
    server.answers = [send_problem(503), send_half, send_archive()]
    stage.runtime.start(code_order(stage, server, "ls; wc -l < train.py", working_dir="src"))
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert log(stage).split() == ["train.py", "2000"]
    assert server.paths == ["/code", "/code", "/code?verify=true"], "the server's errors are retried"


def test_pod_with_a_failed_download_does_not_start_and_reports_the_reason(
    stage: RealKubernetesStage, server: CodeServer
) -> None:
    server.answers = [send_problem(409)]
    stage.runtime.start(code_order(stage, server, "echo started"))
    report = ended(stage.runtime, "p-1")
    assert report.cause is PodCause.START_FAILED
    assert report.message == (
        "the code could not be copied to the pod: the server responded with 409: No code for you."
    )
    assert log(stage) == ""


def test_restarted_scheduler_sends_the_code_again(stage: RealKubernetesStage, server: CodeServer) -> None:
    server.answers = [server.stop_in_the_middle, send_archive()]
    order = code_order(stage, server, 'ls -A "$BERTH_POD_DIR" && wc -l < src/train.py')
    stage.runtime.start(order)
    poll_until(lambda: progress(stage) and server.paths)
    stage.restart()
    assert progress(stage) == "copying the code", "a process without the order shows what is going on"
    stage.runtime.start(order)
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert log(stage).split() == ["code", "2000"], "nothing is left of the first attempt"


def test_pod_that_waits_for_its_code_can_be_stopped_immediately(
    stage: RealKubernetesStage, server: CodeServer
) -> None:
    server.answers = [server.stop_in_the_middle]
    stage.runtime.start(code_order(stage, server, "echo started", grace_seconds=600))
    poll_until(lambda: progress(stage) and server.paths)
    stage.runtime.stop("p-1", 600)
    report = ended(stage.runtime, "p-1")
    assert (report.cause, log(stage)) == (PodCause.STOPPED, "")
