"""Test that pod limits hold inside the control groups of Slurm jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.slurm.cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.journeys.command import Terminal, sign_in
from tests.journeys.first_chapter import LONG
from tests.journeys.installation import Installation, InstallContext, until
from tests.journeys.on_slurm.slurm_pool import create_pool, installation_settings, provider_settings
from tests.support.ports import free_port

MEMORY = Path("/sys/fs/cgroup/memory")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}"),
    pytest.mark.skipif(not MEMORY.is_dir(), reason="needs control groups of version 1"),
]
WITHIN = 'until [ -e "$BERTH_WORKSPACE/enough" ]; do sleep 0.2; done'
BEYOND = "exec tail -n 1 /dev/zero"  # endless line that tail keeps in memory


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster(has_control_groups=True) as cluster:
        yield cluster


@pytest.fixture
def installation(installing: InstallContext, slurm: SlurmCluster) -> Iterator[Installation]:
    port = free_port()
    with installing(port, **installation_settings(slurm, port)) as berth:
        yield berth


def test_pod_limits_are_enforced_inside_the_control_groups_of_a_slurm_job(
    installation: Installation, slurm: SlurmCluster, tmp_path: Path
) -> None:
    admin, dave = (sign_in(installation, name, tmp_path / name) for name in ("admin", "dave"))
    create_pool(admin, provider_settings(slurm))

    def describe() -> str:
        client = admin.client()
        lines = [f"{event.kind} {event.node} {event.reason}" for event in client.node_pools.history("hpc")]
        lines += [each.message for each in client.workloads.list()]
        lines += [path.read_text(errors="replace")[-1500:] for path in (slurm.root / "shared/logs").glob("*")]
        return "\n".join([*lines, slurm.run("squeue", "--states=all")])

    def submit(user: Terminal, name: str, command: str) -> None:
        user.berth(
            "submit", "-n", name, "-p", "vision", "--pool", "hpc", "--gpu", "1", "--cpu", "0.1",
            "--memory", "64", "--memory-limit", "100", "--", "sh", "-c", command,
        )  # fmt: skip

    def reach(name: str, phase: str) -> None:
        find = dave.client().workloads.find
        until(lambda: find(name).phase == phase, LONG, lambda: f"{find(name).message}\n{describe()}")

    submit(dave, "within", WITHIN)
    reach("within", "running")
    within = dave.client().workloads.find("within").id
    [pod] = dave.client().workloads.pods(within)
    # The pod itself does not see the names of the groups above its own.
    [group] = MEMORY.glob(f"slurm_n*/uid_*/job_*/step_batch/*/berth-{pod.id}-*")
    [job] = [parent for parent in group.parents if parent.name.startswith("job_")]
    assert int((job / "memory.limit_in_bytes").read_text()) == 2048 * 1024 * 1024
    assert int((group / "memory.limit_in_bytes").read_text()) == 100 * 1024 * 1024

    submit(dave, "beyond", BEYOND)
    reach("beyond", "failed")
    assert "memory limit" in dave.client().workloads.find("beyond").message
    assert dave.client().workloads.find("within").phase == "running"

    # The pool releases its allocation, and the job's groups disappear with it.
    (slurm.root / "shared/workspaces" / within / "enough").touch()
    reach("within", "completed")
    until(lambda: slurm.queue() == [], LONG, describe)
    until(lambda: slurm.leftovers() == [], LONG, slurm.leftovers)
    until(lambda: not job.exists(), LONG, describe)
