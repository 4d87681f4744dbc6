"""Test the path from a Slurm cluster to a reclaimed gang that resumes, and back to an empty queue.

The workloads run code that was sent with their submission.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.client.models.workloads import Workload
from tests.contracts.slurm_cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.journeys.command import Terminal, sign_in
from tests.journeys.conftest import InstallContext
from tests.journeys.installation import Installation, free_port, until
from tests.journeys.slurm_pool import GPUS, create_pool, installation_settings, provider_settings

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3600)]

LONG = 900.0  # nodes take minutes to boot on a busy machine
# A script in the code that is sent. It counts steps from its checkpoint until it may end, and saves the count
# before it is stopped.
TRAIN = """
test "$PWD" = "$BERTH_CODE_DIR" || exit 9
rate=$(cat config/rate)
cd "$BERTH_WORKSPACE"
step=$(cat "checkpoint-$RANK" 2>/dev/null || echo 0)
echo "rank $RANK on $BERTH_NODE begins at step $step and sees $CUDA_VISIBLE_DEVICES, rate $rate"
trap 'echo "signal at step $step"' USR1
trap 'echo "$step" > "checkpoint-$RANK"; exit 0' TERM
while [ ! -e enough ]; do step=$((step + 1)); sleep 0.1; done
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if missing := missing_programs():
        pytest.skip(f"needs {', '.join(missing)}: run `make slurm` as root")
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture
def installation(installing: InstallContext, slurm: SlurmCluster) -> Iterator[Installation]:
    """Run Berth on a machine with Slurm's programs."""
    port = free_port()
    with installing(port, **installation_settings(slurm, port)) as berth:
        yield berth


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Create a directory with a program and its configuration."""
    root = tmp_path / "checkout"
    (root / "config").mkdir(parents=True)
    (root / "config" / "rate").write_text("0.01\n")
    (root / "train.sh").write_text(TRAIN)
    return root


def submit(user: Terminal, name: str, project: str, replicas: int, code: Path) -> Workload:
    user.berth(
        "submit", "-n", name, "-p", project, "--pool", "hpc", "--replicas", str(replicas), "--gpu", str(GPUS),
        "--cpu", "0.1", "--memory", "64", "--grace", "5s", "--preemption-signal", "USR1@2s",
        "--code", str(code), "--", "sh", "train.sh",
    )  # fmt: skip
    return user.client().workloads.find(name)


def test_gang_on_slurm_is_reclaimed_resumes_and_leaves_no_slurm_jobs(
    installation: Installation, slurm: SlurmCluster, checkout: Path, tmp_path: Path
) -> None:
    admin, dave, grace = (sign_in(installation, name, tmp_path / name) for name in ("admin", "dave", "grace"))

    def story() -> str:
        lines = [f"{node.name} {node.state} {node.not_ready_reason}" for node in admin.client().nodes.list()]
        lines += [
            f"{event.kind} {event.node} {event.reason}" for event in admin.client().node_pools.history("hpc")
        ]
        lines += [path.read_text(errors="replace")[-1500:] for path in (slurm.root / "shared/logs").glob("*")]
        return "\n".join([*lines, slurm.run("squeue", "--states=all")])

    def until_phase(workload: Workload, phase: str) -> None:
        client = admin.client()
        until(lambda: client.workloads.get(workload.id).phase == phase, LONG, story)

    def log(workload: Workload, run: int) -> str:
        client = admin.client()
        return client.workloads.log(workload.id, pod="worker-0", run=run).data.decode()

    refused = admin.berth(
        "pool", "create", "hpc", "--provider", "slurm", "--set", "provider_settings={partition: gpuu}",
        "--gpus-per-node", "2", exits=1,
    )  # fmt: skip
    assert "Did you mean `gpu`?" in refused
    create_pool(admin, provider_settings(slurm))
    assert slurm.queue() == []

    # vision has a quota of 2 GPUs and borrows the other two. The pool grows by two jobs.
    gang = submit(dave, "train", "vision", 2, checkout)
    until_phase(gang, "running")
    assert sorted(name.split(".")[1:4] for name in slurm.queue()) == [
        ["journey", "hpc", "0"],
        ["journey", "hpc", "1"],
    ]
    until(lambda: "begins at step 0 and sees 0,1, rate 0.01" in log(gang, run=1), LONG)
    nodes = list(admin.client().nodes.list(pool="hpc"))
    assert {(node.capacity.gpu, node.capacity.cpu, node.capacity.memory_mib) for node in nodes} == {
        (2, 2, 2048)
    }

    # ads requests the GPUs of its quota: the gang is reclaimed, and resumes when they are free again.
    preemptor = submit(grace, "within-quota", "ads", 1, checkout)
    until_phase(preemptor, "running")
    assert dave.client().workloads.get(gang.id).preemptions == 1
    until(lambda: "signal at step" in log(gang, run=1), LONG, story)
    workspaces = slurm.root / "shared" / "workspaces"
    (workspaces / preemptor.id / "enough").touch()
    until_phase(preemptor, "completed")
    until_phase(gang, "running")
    until(lambda: "begins at step" in log(gang, run=2), LONG)
    assert "begins at step 0 " not in log(gang, run=2)
    assert "rate 0.01" in log(gang, run=2), "the second run gets the code again"
    (workspaces / gang.id / "enough").touch()
    until_phase(gang, "completed")

    # The idle pool releases its allocations, and the jobs leave nothing behind.
    until(lambda: slurm.queue() == [], LONG, story)
    assert list((slurm.root / "shared" / "pilots").iterdir()) == []
    until(lambda: list(admin.client().nodes.list(pool="hpc")) == [], LONG, story)
    until(lambda: slurm.leftovers() == [], LONG, slurm.leftovers)
