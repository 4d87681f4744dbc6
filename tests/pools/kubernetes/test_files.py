"""Tests for the files of ended Kubernetes pods, with this machine's programs in place of an image."""

import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from pools.kubernetes.files.archive import BrokenArchive, FilesTooLarge, Unpacker
from pools.kubernetes.files.container import EMPTY, MISSING, pack_command
from pools.kubernetes.files.store import CopyLimits
from pools.kubernetes.reports import command_report
from pools.runtimes.base import PodCause, PodState, StartRejected
from pools.runtimes.files.base import FilesNotFound
from tests.contracts.kubernetes.stage import FakeKubernetesStage
from tests.contracts.pods import ended, poll_until, running
from tests.fakes.kubernetes.store import Rejection
from tests.support.present import present

MIB = 2**20


def block(stage: FakeKubernetesStage) -> None:
    """Make the cluster reject the exec calls that copy files."""
    stage.cluster.rejections["get", "pods/exec"] = Rejection(
        500, "InternalError", "the node does not respond"
    )


def phase(stage: FakeKubernetesStage, pod_id: str) -> str:
    return str(stage.cluster.pod(pod_id)["status"]["phase"])


def test_outputs_of_an_ended_pod_outlive_its_containers(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.order("p-1", "train", outputs=("results", "missing")))
    running(stage.runtime, "p-1")
    results = stage.files.directory("p-1") / "results"
    results.mkdir()
    (results / "loss.csv").write_text("1,0.5\n")
    (results / "link").symlink_to("/etc")
    os.mkfifo(results / "pipe")
    stage.end_pod("p-1", 0)
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.cause) == (0, PodCause.NONE)
    assert phase(stage, "p-1") == "Succeeded", "the pod's resources are free in the cluster"
    shutil.rmtree(results)
    listing = stage.restart().list_files("p-1", ["results", "missing"])
    assert [(file.path, file.size) for file in listing.files] == [("results/loss.csv", 6)]
    assert listing.skipped == {
        "missing": "No such file or directory",
        "results/link": "is a symbolic link",
        "results/pipe": "is not a regular file",
    }
    assert stage.runtime.read_file("p-1", "results/loss.csv", 2, 10) == b"0.5\n"
    stage.runtime.forget("p-1")
    with pytest.raises(FilesNotFound):
        stage.runtime.list_files("p-1", ["results"])
    assert [path.name for path in (stage.root / "files").iterdir()] == []


def test_pod_keeps_its_gpus_until_its_files_are_copied(stage: FakeKubernetesStage) -> None:
    block(stage)
    stage.runtime.start(stage.order("p-1", "train", devices=("0",), outputs=("state",)))
    started = running(stage.runtime, "p-1")
    (stage.files.directory("p-1") / "state").write_text("kept")
    stage.end_pod("p-1", 3)
    poll_until(lambda: running(stage.runtime, "p-1") and ("get", "pods/exec") in stage.cluster.calls)
    assert running(stage.runtime, "p-1") == started
    stage.runtime.stop("p-1", 60)
    assert "deletionTimestamp" not in stage.cluster.pod("p-1")["metadata"], "the copy is not interrupted"
    stage.restart()
    assert running(stage.runtime, "p-1").started_at == started.started_at
    del stage.cluster.rejections["get", "pods/exec"]
    stage.restart()
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.cause) == (3, PodCause.NONE)
    assert stage.runtime.read_file("p-1", "state", 0, 10) == b"kept"


def test_pod_that_berth_deletes_after_its_command_has_ended_does_not_count_as_evicted(
    stage: FakeKubernetesStage,
) -> None:
    block(stage)
    stage.runtime.start(stage.order("p-1", "train", outputs=("state",)))
    running(stage.runtime, "p-1")
    stage.end_pod("p-1", 3)
    poll_until(lambda: command_report(stage.cluster.pod("p-1")) is not None)
    end = present(command_report(stage.cluster.pod("p-1")))
    stage.runtime.ledger.save_expected_report("p-1", end, durable=True)
    stage.cluster.delete_pod(stage.namespace, "p-1", 0)  # the watch reports this before Berth records the end
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.cause, report.started_at) == (3, PodCause.NONE, end.started_at)


def test_outputs_of_a_stopped_pod_are_copied_within_its_grace_period(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.order("p-1", "train", outputs=("state",), grace_seconds=20))
    running(stage.runtime, "p-1")
    (stage.files.directory("p-1") / "state").write_text("saved")
    stage.runtime.stop("p-1", 20)
    report = ended(stage.runtime, "p-1")
    assert (report.signal, report.cause) == (15, PodCause.STOPPED)
    assert stage.runtime.read_file("p-1", "state", 0, 10) == b"saved"


def test_immediately_killed_pod_has_no_outputs(stage: FakeKubernetesStage) -> None:
    block(stage)
    stage.runtime.start(stage.order("p-1", "train", outputs=("state",)))
    running(stage.runtime, "p-1")
    pod = stage.cluster.pod("p-1")["metadata"]
    stage.cluster.delete_pod(pod["namespace"], "p-1", 0)
    assert ended(stage.runtime, "p-1").cause is PodCause.EVICTED
    with pytest.raises(FilesNotFound, match="deleted before Berth had copied them"):
        stage.runtime.list_files("p-1", ["state"])


@pytest.mark.heavy
def test_outputs_over_the_limit_are_not_copied(stage: FakeKubernetesStage) -> None:
    stage.limits = CopyLimits(size=MIB)
    stage.runtime.start(stage.order("p-1", "train", outputs=("huge",)))
    running(stage.runtime, "p-1")
    with (stage.files.directory("p-1") / "huge").open("wb") as file:
        file.truncate(5 * MIB)
    stage.end_pod("p-1", 0)
    assert ended(stage.runtime, "p-1").exit_code == 0
    with pytest.raises(FilesNotFound, match=r"maximum of 1\.0 MiB.*pod/huge \(5\.0 MiB\)"):
        stage.runtime.list_files("p-1", ["huge"])


def test_failed_pod_keeps_all_files_and_a_completed_pod_keeps_only_its_outputs(
    stage: FakeKubernetesStage,
) -> None:
    for pod_id, code in (("p-1", 3), ("p-2", 0)):
        stage.runtime.start(stage.order(pod_id, "train", outputs=("state",), keeps_files=True))
        running(stage.runtime, pod_id)
        for name in ("state", "core"):
            (stage.files.directory(pod_id) / name).write_text(name)
        stage.end_pod(pod_id, code)
        ended(stage.runtime, pod_id)
        assert [file.path for file in stage.runtime.list_files(pod_id, ["state"]).files] == ["state"]
    listing = stage.runtime.list_retained_files("p-1", "train-1", "").files
    assert [file.path for file in listing] == ["pod/core", "pod/state"]
    assert stage.runtime.read_retained_file("p-1", "train-1", "pod/core", 0, 10) == b"core"
    with pytest.raises(FilesNotFound, match="not kept"):
        stage.runtime.list_retained_files("p-2", "train-1", "")


def test_only_pods_with_files_to_copy_have_a_second_container(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.order("p-1", "train"))
    stage.runtime.start(
        stage.order("p-2", "train", devices=("0",), outputs=("state",), secret_env={"TOKEN": "swordfish"})
    )
    (main,) = stage.cluster.pod("p-1")["spec"]["containers"]
    same, keeper = stage.cluster.pod("p-2")["spec"]["containers"]
    assert main["name"] == same["name"] == "main"
    assert keeper["image"] == main["image"]
    assert "nvidia.com/gpu" not in json.dumps(keeper)
    assert "TOKEN" not in json.dumps(keeper)
    assert {mount["mountPath"] for mount in keeper["volumeMounts"]} == {"/berth/pod", "/berth/workspace"}


def test_cluster_quota_blocks_a_pod_with_outputs_like_any_other_pod(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.order("p-1", "train"))
    stage.cluster.set_quota(stage.namespace, "team", hard={"requests.cpu": "15m"})
    with pytest.raises(StartRejected, match="quota team"):
        stage.runtime.start(stage.order("p-2", "train", outputs=("state",)))
    assert stage.runtime.get_reports(["p-2"])["p-2"].state is not PodState.EXITED


def packed(directory: Path, *paths: str, missing: str = "") -> tuple[int, bytes, bytes]:
    """Run the script that packs files, with this directory in place of `/berth`."""
    programs = directory.parent / f"programs-without-{missing or 'none'}"
    programs.mkdir(exist_ok=True)
    for name in {"sh", "tar"} - {missing}:
        if not (programs / name).exists():
            (programs / name).symlink_to(str(shutil.which(name)))
    command = [part.replace("/berth", str(directory)) for part in pack_command(paths)]
    finished = subprocess.run(command, capture_output=True, check=False, env={"PATH": str(programs)})
    return finished.returncode, finished.stdout, finished.stderr


@pytest.fixture
def berth(tmp_path: Path) -> Path:
    (tmp_path / "berth" / "pod").mkdir(parents=True)
    return tmp_path / "berth"


def unpack(target: Path, content: bytes, part: int = 1000, files: int = 20) -> Unpacker:
    target.mkdir()
    unpacker = Unpacker(target, ("pod", "workspace"), MIB, files)
    try:
        for first in range(0, len(content), part):
            unpacker.feed(content[first : first + part])
    finally:
        unpacker.close()
    return unpacker


def test_packing_script_does_not_follow_symbolic_links(berth: Path) -> None:
    (berth / "pod" / "root").symlink_to("/")
    (berth / "pod" / "-x y").write_text("odd")
    assert packed(berth, "pod/root/etc", "pod/missing") == (EMPTY, b"", b"")
    code, content, _ = packed(berth, "pod/root/etc", "pod/-x y", "pod/root")
    unpacker = unpack(berth.parent / "out", content)
    assert code == 0
    assert unpacker.is_complete
    assert unpacker.skipped == {"pod/root": "is a symbolic link"}
    assert (berth.parent / "out/pod/-x y").read_text() == "odd"
    assert packed(berth, "pod/root", missing="tar") == (MISSING, b"", b"its image has no tar\n")


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_archives_of_all_formats_are_unpacked(tmp_path: Path, format_: int) -> None:
    name = "pod/" + "/".join(["directory"] * (20 if format_ != tarfile.USTAR_FORMAT else 8)) + "/data"
    content = archive((name, b"x" * 1500), ("pod/run", b"#!"), format_=format_)
    for part in (1, 512, 100_000):
        unpacker = unpack(tmp_path / f"out-{part}", content, part)
        assert (tmp_path / f"out-{part}" / name).read_bytes() == b"x" * 1500
        assert unpacker.is_complete
        assert unpacker.skipped == {}


def archive(*files: tuple[str, bytes], format_: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format_) as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "name", ["../out", "pod/../../out", "/etc/passwd", "etc/passwd", "pod", "pod/" + "a/" * 70 + "x"]
)
def test_file_outside_the_pods_directories_is_omitted(tmp_path: Path, name: str) -> None:
    unpacker = unpack(tmp_path / "out", archive((name, b"bad"), ("pod/good", b"good")))
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["good"]
    assert len(unpacker.skipped) == 1
    assert not (tmp_path / "etc").exists()


def test_hostile_archives_are_rejected(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 8 * 2**30
    for number, (content, rejection) in enumerate(
        [
            (header.tobuf(tarfile.GNU_FORMAT), BrokenArchive),
            (b"no archive" * 100, BrokenArchive),
            (archive(("pod/a", b"1"), ("pod/a", b"2")), BrokenArchive),
            (archive(("pod/a", b"1"), ("pod/a/b", b"2")), BrokenArchive),
            (archive(("pod/a", bytes(MIB)), ("pod/b", b"2")), FilesTooLarge),
            (archive(*[(f"pod/{each}", b"") for each in range(21)]), FilesTooLarge),
        ]
    ):
        with pytest.raises(rejection):
            unpack(tmp_path / f"out-{number}", content)


def test_archives_with_too_many_long_paths_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.kubernetes.files.archive.PATH_BYTES_MAX", MIB)
    names = [f"pod/{number:0250}" for number in range(5000)]
    with pytest.raises(FilesTooLarge, match="exceed 1 MiB in total"):
        unpack(tmp_path / "out", archive(*[(name, b"") for name in names]), part=MIB, files=5000)
