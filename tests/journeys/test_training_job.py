"""Tests for a new user's first workloads: one without GPUs, and the TrainingJob from the source document."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.client import Client
from tests.journeys.command import Terminal, sign_in
from tests.journeys.conftest import InstallContext
from tests.journeys.installation import ROOT, Installation, until

pytestmark = pytest.mark.timeout(900)

EXAMPLE = ROOT / "examples" / "training-job"
PATIENCE = 300.0


@pytest.fixture(scope="module")
def berth(installing: InstallContext) -> Iterator[Installation]:
    """Run an installation without nodes, with the trainer's program in the manifest's workspace."""
    with tempfile.TemporaryDirectory(prefix="berth-training-job-") as place:
        workspace = Path(place) / "home" / "digits"
        workspace.mkdir(parents=True)
        workspace.chmod(0o777)  # the pods' user writes to it
        shutil.copy(EXAMPLE / "train.py", workspace)
        with installing(BERTH_WORKSPACE_ROOT=place) as installation:
            yield installation


@pytest.fixture(scope="module")
def dave(berth: Installation, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """Sign in as a member of one project."""
    return sign_in(berth, "dave", tmp_path_factory.mktemp("dave") / "config")


def phase(client: Client, name: str) -> str:
    return client.workloads.find(name).phase


def test_workload_without_gpus_starts_in_a_pool_that_has_no_nodes(dave: Terminal) -> None:
    client = dave.client()
    assert not dave.json("node", "list")
    dave.berth("submit", "-n", "no-gpu", "--gpu", "0", "--shell", "echo done")
    until(lambda: phase(client, "no-gpu") == "completed", PATIENCE)
    assert len(dave.json("node", "list")) == 1


@pytest.mark.shows("PAD-04", "PAD-05", "PAD-07", "PAD-08", "PAD-09", "PAD-10")
def test_training_job_manifest_completes_on_provisioned_nodes(dave: Terminal) -> None:
    client = dave.client()
    dave.berth("submit", "-f", str(EXAMPLE / "training_job.yaml"))
    until(lambda: phase(client, "digits") in ("completed", "failed", "cancelled"), PATIENCE)
    workload = client.workloads.find("digits")
    pods = client.workloads.pods(workload.id)
    log = client.workloads.log(workload.id, pod="trainer-0").data.decode()
    assert workload.phase == "completed", log
    assert Counter(pod.role for pod in pods) == {"trainer": 6, "pserver": 3, "master": 1}
    assert len({pod.node for pod in pods if pod.role == "trainer"}) >= 3
    assert "trained with 6 trainers" in log
    idle = client.workloads.log(workload.id, pod="pserver-0").data.decode()
    assert "idles until the other roles complete" in idle
