"""Tests for the code of Kubernetes pods, with this machine's programs in place of an image."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pools.kubernetes.code.container import BLOCK, INCOMPLETE, MISSING, end_marker, unpack_command
from pools.kubernetes.mirror import Mirror
from pools.runtimes.base import PodCause, PodState
from tests.code.code_server import SECRET, archive
from tests.contracts.kubernetes.stage import FakeKubernetesStage

TAR_END = 1024


def run(directory: Path, content: bytes, missing: str = "", *, cut: int = 0) -> tuple[int, bytes, bytes]:
    """Run the script with a truncated archive. Return its exit code, output and errors."""
    programs = directory.parent / "programs"
    programs.mkdir(exist_ok=True)
    for name in {"sh", "dd", "mkdir", "mv", "rm", "tar"} - {missing}:
        if not (programs / name).exists():
            (programs / name).symlink_to(str(shutil.which(name)))
    complete = content[:-TAR_END] + end_marker("m1") + bytes(TAR_END)
    finished = subprocess.run(
        unpack_command("m1", len(complete)), input=complete[: len(complete) - cut], capture_output=True,
        check=False, env={"PATH": str(programs), "BERTH_POD_DIR": str(directory)},
    )  # fmt: skip
    return finished.returncode, finished.stdout, finished.stderr


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    (tmp_path / "pod").mkdir()
    return tmp_path / "pod"


def test_script_unpacks_the_code_atomically_and_only_once(pod: Path) -> None:
    (pod / ".new-code-earlier").mkdir()
    assert run(pod, archive(150_000)) == (0, b"\n" * (150_000 * 17 // BLOCK), b"")
    assert [path.name for path in pod.iterdir()] == ["code"]
    assert (pod / "code/src/train.py").stat().st_size == 150_000 * 17
    (pod / "code/src/train.py").write_text("changed")
    assert run(pod, archive())[0] == 0
    assert (pod / "code/src/train.py").read_text() == "changed", "code that the pod has is never replaced"


@pytest.mark.parametrize(("cut", "code"), [(TAR_END + 512, INCOMPLETE), (3 * 1024, 1)])
def test_code_of_an_interrupted_transfer_is_not_used(pod: Path, cut: int, code: int) -> None:
    assert run(pod, archive(), cut=cut)[0] == code
    assert not (pod / "code").exists()


def test_missing_tar_in_the_image_is_named_as_the_reason(pod: Path) -> None:
    assert run(pod, archive(), missing="tar") == (MISSING, b"", b"its image has no tar\n")


def test_code_container_has_no_secrets_and_no_gpus(stage: FakeKubernetesStage) -> None:
    order = stage.order("p-1", "train", devices=("0", "1"), secret_env={"TOKEN": "swordfish"}, env={"A": "b"})
    stage.runtime.start(replace(order, code_url="http://127.0.0.1:1/code", download_secret=SECRET))
    spec = stage.cluster.pod("p-1")["spec"]
    (receiver,), (main,) = spec["initContainers"], spec["containers"]
    assert receiver["env"] == [
        {"name": "BERTH_POD_DIR", "value": "/berth/pod"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
    ]
    assert [mount["mountPath"] for mount in receiver["volumeMounts"]] == ["/berth/pod"]
    assert receiver["resources"]["limits"] == {"cpu": "10m", "memory": "16Mi"}
    assert receiver["image"] == main["image"]
    assert main["workingDir"] == "/berth/pod/code"
    assert {"name": "BERTH_CODE_DIR", "value": "/berth/pod/code"} in main["env"]
    assert SECRET not in str(stage.cluster.pod("p-1"))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (
            {"reason": "StartError", "exitCode": 128, "message": 'exec: "sh": not found'},
            'its image cannot run `sh`: exec: "sh": not found',
        ),
        ({"reason": "OOMKilled", "exitCode": 137}, "the pod used all memory that its limit allows"),
        ({"reason": "Error", "exitCode": 1}, "the container that waits for it ended with exit code 1"),
    ],
)
def test_code_container_failure_is_explained(
    stage: FakeKubernetesStage, monkeypatch: pytest.MonkeyPatch, state: dict[str, object], expected: str
) -> None:
    stage.runtime.start(
        stage.order("p-1", "train", code_url="http://127.0.0.1:1/code", download_secret=SECRET)
    )
    containers = [{"name": "code", "state": {"terminated": state}}]
    pod = stage.cluster.pod("p-1") | {"status": {"phase": "Failed", "initContainerStatuses": containers}}
    monkeypatch.setattr(Mirror, "own_pods", lambda mirror, pool, patience: {"p-1": pod})
    report = stage.runtime.get_reports(["p-1"])["p-1"]
    assert (report.state, report.cause) == (PodState.EXITED, PodCause.START_FAILED)
    assert report.message == f"the code could not be copied to the pod: {expected}"
