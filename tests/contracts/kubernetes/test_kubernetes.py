"""Contract tests for the Kubernetes runtime on a real cluster, and tests that need a real cluster."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import parse_kubeconfig
from pools.runtimes.base import PodCause, RuntimeFailure, StartRejected
from tests.contracts import test_runtime as contract
from tests.contracts.kubernetes.cluster import with_shipped_role
from tests.contracts.kubernetes.stage import RealKubernetesStage
from tests.contracts.pods import ended, poll_until, running

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]  # the first test waits for the cluster

globals().update(
    {
        name: claim
        for name, claim in vars(contract).items()
        if name.startswith("test_") and "stage" in inspect.signature(claim).parameters
    }
)


@pytest.fixture
def stage(kubeconfig: str, tmp_path: Path) -> Iterator[RealKubernetesStage]:
    connection = parse_kubeconfig(with_shipped_role(kubeconfig))
    stage = RealKubernetesStage(tmp_path / "runtime", connection)
    yield stage
    stage.sweep(Api(parse_kubeconfig(kubeconfig)))
    stage.close()


def test_environment_variables_are_passed_to_the_command_unchanged(stage: RealKubernetesStage) -> None:
    env = {"TEXT": "$(HOME) $$x $(", "RANK": "0"}
    stage.runtime.start(
        stage.order("p-1", "sh", "-c", 'echo "$TEXT" $ADDR; pwd', env=env, address_env=("ADDR",))
    )
    assert ended(stage.runtime, "p-1").exit_code == 0
    text, directory = stage.runtime.read_log("p-1", 0, 1000).data.decode().splitlines()
    assert text.startswith("$(HOME) $$x $( 10."), "the last word is the pod's own address"
    assert directory == "/berth/workspace"


def test_secrets_are_passed_to_a_pod_but_not_stored_in_its_object(
    stage: RealKubernetesStage, kubeconfig: str
) -> None:
    secrets = {"secret_env": {"PASSWORD": "swordfish-1"}, "secret_files": {"key": "swordfish-2"}}
    script = (
        'test "$PASSWORD" = sword""fish-1 && grep -q sword""fish-2 "$BERTH_SECRETS_DIR/key"; exec sleep 600'
    )
    script = script.replace("grep -q", "busybox grep -q")
    stage.runtime.start(
        stage.order(
            "p-1", "sh", "-c", f"if {script.replace('; exec', '; then echo ok; fi; exec')}", **secrets
        )
    )
    running(stage.runtime, "p-1")
    poll_until(lambda: stage.runtime.read_log("p-1", 0, 100).data == b"ok\n")
    api = Api(parse_kubeconfig(kubeconfig))
    pod = api.get(f"/api/v1/namespaces/{stage.namespace}/pods/p-1")
    assert "swordfish" not in str(pod)
    (owner,) = api.get(f"/api/v1/namespaces/{stage.namespace}/secrets/p-1")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", pod["metadata"]["uid"])
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_pod_that_exceeds_its_memory_limit_reports_out_of_memory(stage: RealKubernetesStage) -> None:
    stage.runtime.start(stage.order("p-1", "sh", "-c", "tail /dev/zero", memory_limit_mib=16))
    report = ended(stage.runtime, "p-1")
    assert (report.cause, report.signal) == (PodCause.OUT_OF_MEMORY, 9)


def test_missing_program_and_missing_image_are_reported(stage: RealKubernetesStage) -> None:
    stage.runtime.start(stage.order("p-1", "no-such-program"))
    stage.runtime.start(stage.order("p-2", "true", image="berth.test/missing:1"))
    program, image = ended(stage.runtime, "p-1"), ended(stage.runtime, "p-2")
    assert (program.cause, image.cause) == (PodCause.START_FAILED, PodCause.IMAGE_PULL_FAILED)
    assert "the image has no program `" in program.message
    assert "ErrImageNeverPull" in image.message


def test_log_of_a_stopped_pod_includes_its_last_lines(stage: RealKubernetesStage) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    stage.runtime.start(stage.order("p-1", "sh", "-c", script, grace_seconds=20))
    poll_until(lambda: stage.runtime.read_log("p-1", 0, 100).data == b"up\n")
    stage.runtime.stop("p-1", 20)
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.cause) == (0, PodCause.STOPPED)
    poll_until(lambda: stage.runtime.read_log("p-1", 0, 100).data == b"up\nsaved\n")


def test_long_lines_are_logged_unchanged(stage: RealKubernetesStage) -> None:
    script = (
        "i=0; while [ $i -lt 5 ]; do head -c 40000 /dev/zero | busybox tr '\\0' x; echo; i=$((i+1)); done"
    )
    stage.runtime.start(stage.order("p-1", "sh", "-c", script))
    ended(stage.runtime, "p-1")
    assert stage.runtime.read_log("p-1", 0, 1_000_000).data == (b"x" * 40000 + b"\n") * 5


def test_rejection_by_a_cluster_quota_reports_the_request_and_the_usage(
    stage: RealKubernetesStage, kubeconfig: str
) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    api = Api(parse_kubeconfig(kubeconfig))
    path = f"/api/v1/namespaces/{stage.namespace}/resourcequotas"
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "15m"}}}
    api.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    poll_until(lambda: api.get(f"{path}/team").get("status", {}).get("used") == {"requests.cpu": "10m"})
    numbers = r"cpu: 10m requested, 10m of 15m used"
    with pytest.raises(StartRejected, match=rf"quota team for the namespace {stage.namespace} .*{numbers}"):
        stage.runtime.start(stage.long("p-2"))
    with pytest.raises(StartRejected, match="cpu: 20m requested, 10m of 15m used"):
        stage.runtime.start(stage.order("p-3", "true", cpu_milli=20))
    stage.runtime.stop("p-3", 0)
    api.delete(f"{path}/team")
    poll_until(lambda: _starts(stage, "p-2"))
    running(stage.runtime, "p-2")


def _starts(stage: RealKubernetesStage, pod_id: str) -> bool:
    try:
        stage.runtime.start(stage.long(pod_id))
    except RuntimeFailure:
        return False
    return True
