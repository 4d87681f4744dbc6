"""Test a new user's first workload: the TrainingJob from the source document."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.journeys.command import Terminal
from tests.journeys.installation import ROOT, until

pytestmark = pytest.mark.timeout(900)

EXAMPLE = ROOT / "examples" / "training-job"
PATIENCE = 600.0


@pytest.fixture
def _trainer(workspaces: Path) -> None:
    """Install the trainer program in the manifest's workspace."""
    workspace = workspaces / "home" / "digits"
    workspace.mkdir(parents=True)
    workspace.chmod(0o777)  # the pods' user writes to it
    shutil.copy(EXAMPLE / "train.py", workspace)


@pytest.mark.heavy
@pytest.mark.shows("PAD-04", "PAD-05", "PAD-07", "PAD-08", "PAD-09", "PAD-10")
@pytest.mark.usefixtures("_trainer")
def test_training_job_manifest_completes_on_provisioned_nodes(dave_on_shared_berth: Terminal) -> None:
    client = dave_on_shared_berth.client()
    dave_on_shared_berth.berth("submit", "-f", str(EXAMPLE / "training_job.yaml"))
    ends = ("completed", "failed", "cancelled")
    until(lambda: client.workloads.find("digits").phase in ends, PATIENCE)
    workload = client.workloads.find("digits")
    pods = client.workloads.pods(workload.id)
    log = client.workloads.log(workload.id, pod="trainer-0").data.decode()
    assert workload.phase == "completed", log
    assert Counter(pod.role for pod in pods) == {"trainer": 6, "pserver": 3, "master": 1}
    assert len({pod.node for pod in pods if pod.role == "trainer"}) >= 3
    assert "trained with 6 trainers" in log
    idle = client.workloads.log(workload.id, pod="pserver-0").data.decode()
    assert "idles until the other roles complete" in idle
