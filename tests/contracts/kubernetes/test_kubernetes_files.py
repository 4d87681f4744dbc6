"""Tests for the files of ended pods on a real cluster: outputs, and all files of failed pods."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import parse_kubeconfig
from pools.runtimes.base import PodCause
from pools.runtimes.files.base import FilesNotFound
from tests.contracts.kubernetes.cluster import with_shipped_role
from tests.contracts.kubernetes.stage import RealKubernetesStage
from tests.contracts.pods import (
    LEAVES_FILES,
    claim_files_of_an_ended_pod_are_read_without_links,
    ended,
    poll_until,
    running,
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

SIZE = 40_000_000  # size of a large file in bytes
WRITES_OUTPUTS = """
cd "$BERTH_POD_DIR" && mkdir -p results/deep && printf beta > results/deep/b && echo 1 > loss.csv
printf '#!/bin/sh' > results/run && busybox chmod 755 results/run
ln -s /etc/passwd results/link && busybox mkfifo results/pipe && echo x > results/two
busybox ln results/two results/twin && busybox mknod results/null c 1 3; echo hidden > other; ln -s / root
"""


@pytest.fixture
def stage(kubeconfig: str, tmp_path: Path) -> Iterator[RealKubernetesStage]:
    connection = parse_kubeconfig(with_shipped_role(kubeconfig))
    stage = RealKubernetesStage(tmp_path / "runtime", connection, keeps_workspaces=False)
    yield stage
    stage.sweep(Api(parse_kubeconfig(kubeconfig)))
    stage.close()


def test_links_are_not_followed_when_files_of_a_failed_pod_are_read(stage: RealKubernetesStage) -> None:
    pod = stage.order("p-1", *LEAVES_FILES, secret_files={"key": "hidden"}, keeps_files=True)
    claim_files_of_an_ended_pod_are_read_without_links(stage.runtime, pod)


def test_links_are_not_followed_when_outputs_of_an_ended_pod_are_read(stage: RealKubernetesStage) -> None:
    outputs = ("results", "loss.csv", "missing", "root/etc", "root")
    stage.runtime.start(stage.order("p-1", "sh", "-c", f"{WRITES_OUTPUTS} exit 3", outputs=outputs))
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.cause) == (3, PodCause.NONE)
    listing = stage.runtime.list_files("p-1", outputs)
    files = {file.path: (file.size, file.executable) for file in listing.files}
    links = {files.pop("results/two", None), files.pop("results/twin", None)}
    assert links == {None, (2, False)}, "one of two hard links is copied"
    assert files == {"loss.csv": (2, False), "results/deep/b": (4, False), "results/run": (9, True)}
    assert listing.skipped["results/link"] == listing.skipped["root"] == "is a symbolic link"
    assert listing.skipped["results/pipe"] == "is not a regular file"
    assert listing.skipped["missing"] == "No such file or directory"
    assert stage.runtime.read_file("p-1", "results/deep/b", 1, 10) == b"eta"
    for path in ("other", "results/link", "../pod/other", "root/etc/passwd"):
        with pytest.raises(FilesNotFound):
            stage.runtime.read_file("p-1", path, 0, 10)
    with pytest.raises(FilesNotFound, match="not kept"):
        stage.runtime.list_retained_files("p-1", "train-1", "")
    stage.runtime.forget("p-1")
    with pytest.raises(FilesNotFound):
        stage.runtime.list_files("p-1", outputs)


def test_pod_ends_in_the_cluster_once_its_files_have_been_copied(
    stage: RealKubernetesStage, kubeconfig: str
) -> None:
    script = f'dd if=/dev/zero of="$BERTH_POD_DIR/model" bs=1000000 count={SIZE // 1_000_000}'
    stage.runtime.start(stage.order("p-1", "sh", "-c", script, outputs=("model",)))
    assert ended(stage.runtime, "p-1").exit_code == 0
    admin = Api(parse_kubeconfig(kubeconfig))
    assert admin.get(f"/api/v1/namespaces/{stage.namespace}/pods/p-1")["status"]["phase"] == "Succeeded"
    admin.close()
    (file,) = stage.restart().list_files("p-1", ["model"]).files
    assert (file.path, file.size) == ("model", SIZE)


def test_outputs_that_a_pod_writes_while_it_stops_are_copied(stage: RealKubernetesStage) -> None:
    script = "trap 'echo saved > \"$BERTH_POD_DIR/state\"; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    stage.runtime.start(stage.order("p-1", "sh", "-c", script, grace_seconds=20, outputs=("state",)))
    poll_until(lambda: stage.runtime.read_log("p-1", 0, 100).data == b"up\n")
    stage.runtime.stop("p-1", 20)
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.cause) == (0, PodCause.STOPPED)
    assert stage.runtime.read_file("p-1", "state", 0, 10) == b"saved\n"


def test_outputs_of_a_pod_that_ignores_sigterm_are_copied(
    stage: RealKubernetesStage,
) -> None:
    script = "trap '' TERM; echo early > \"$BERTH_POD_DIR/state\"; echo up; while :; do sleep 0.1; done"
    stage.runtime.start(stage.order("p-1", "sh", "-c", script, grace_seconds=2, outputs=("state",)))
    poll_until(lambda: stage.runtime.read_log("p-1", 0, 100).data == b"up\n")
    stage.runtime.stop("p-1", 2)
    report = ended(stage.runtime, "p-1")
    assert (report.signal, report.cause) == (signal.SIGKILL, PodCause.STOPPED)
    assert stage.runtime.read_file("p-1", "state", 0, 10) == b"early\n"


def test_file_container_has_no_secrets_and_no_other_volumes(
    stage: RealKubernetesStage, kubeconfig: str
) -> None:
    secrets = {"secret_env": {"PASSWORD": "swordfish"}, "secret_files": {"key": "swordfish"}}
    stage.runtime.start(stage.order("p-1", "sleep", "600", outputs=("state",), **secrets))
    running(stage.runtime, "p-1")
    admin = Api(parse_kubeconfig(kubeconfig))
    spec = admin.get(f"/api/v1/namespaces/{stage.namespace}/pods/p-1")["spec"]
    admin.close()
    _, keeper = spec["containers"]
    assert "swordfish" not in str(spec)
    assert {mount["mountPath"] for mount in keeper["volumeMounts"]} == {"/berth/pod", "/berth/workspace"}
    assert {variable["name"] for variable in keeper["env"]} == {"BERTH_POD_DIR", "NVIDIA_VISIBLE_DEVICES"}
    assert stage.runtime.get_reports(["p-1"])["p-1"].address


# Until there was another process: the cluster starts the second container later. Process 1 cannot be killed.
KILL_OTHERS = """
until [ -n "$killed" ]; do
  for each in /proc/[0-9]*; do
    case $each in /proc/1 | /proc/$$) ;; *) kill -9 "${each#/proc/}" && killed=1 ;; esac
  done
done
sleep 1
"""


def test_pod_that_kills_its_file_container_has_no_files(stage: RealKubernetesStage) -> None:
    stage.runtime.start(stage.order("p-1", "sh", "-c", KILL_OTHERS, outputs=("state",)))
    assert ended(stage.runtime, "p-1").exit_code == 0
    with pytest.raises(FilesNotFound, match="before Berth had copied them"):
        stage.runtime.list_files("p-1", ["state"])
