"""Test an SSH host, a real Slurm cluster and EC2 (simulated by moto) as pools of one installation.

Workloads of one project may use all of them. Pools with the same GPU model share one quota.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from berth.client.models.workloads import Workload
from tests.contracts.slurm.cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, InstallContext, until
from tests.journeys.machines.booted_machine import needs_systemd
from tests.journeys.machines.ec2_machine import Ec2Machine, ec2_machine
from tests.journeys.on_hosts.host_namespaces import DRIVER, needs_namespaces
from tests.journeys.on_hosts.ssh_installation import SshInstallation, read_log_text, ssh_installation
from tests.journeys.on_slurm.slurm_pool import provider_settings
from tests.pools.aws.ec2_account import IMAGE_PARAMETER, REGION, ec2_account, subnets

MISSING = missing_programs()
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: run `make slurm` as root"),
    needs_namespaces,
    needs_systemd,
]
LONG = 1800.0  # nodes take minutes to boot on a busy machine
POOLS = ("metal", "hpc", "cloud")
BURST_SECONDS = 20
FAST = ("reconcile_tick=1", "autoscale_cooldown=0", "autoscale_idle_timeout=5", "boot_timeout=3600")
WORKS = """
cd "$BERTH_WORKSPACE" && echo "worker $RANK on $BERTH_NODE" >> started-$RANK
while [ ! -e enough ]; do sleep 0.2; done
"""


@dataclass(frozen=True)
class Story:
    """An SSH host with two GPUs, a Slurm cluster, and a machine with four GPUs that EC2 can launch."""

    admin: Terminal
    dave: Terminal
    running: SshInstallation
    slurm: SlurmCluster
    cloud: Ec2Machine

    def submit(self, name: str, *options: str) -> str:
        """Submit a gang of two workers with one GPU each. Return the terminal output."""
        pools = [part for pool in POOLS for part in ("--pool", pool)]
        size = ["--gpu", "1", "--replicas", "2", "--cpu", "0.1", "--memory", "64"]
        return self.dave.typed(
            "submit", "-n", name, "-p", "vision", *pools, *size, *options, "--", "sh", "-c", WORKS
        )

    def find(self, name: str) -> Workload:
        return self.dave.client().workloads.find(name)

    def until_runs(self, name: str) -> set[str]:
        """Wait until both workers run, and return the names of their pools."""

        def started() -> list[Path]:
            return sorted(self.workspace(name).glob("started-*"))

        until(lambda: len(started()) == 2, LONG, lambda: self.describe(name))
        nodes = [file.read_text().split()[-1] for file in started()]
        return {node.rpartition("-")[0] for node in nodes}

    def finish(self, name: str) -> None:
        (self.workspace(name) / "enough").touch()
        until(lambda: self.find(name).phase == "completed", LONG, lambda: self.describe(name))

    def workspace(self, name: str) -> Path:
        slurm = self.slurm.root / "shared/workspaces"
        roots = [self.running.workspaces, slurm]
        workload = self.find(name).id
        return next((root / workload for root in roots if (root / workload).exists()), slurm / workload)

    def describe(self, name: str = "") -> str:
        client = self.admin.client()
        lines = [f"{node.name} {node.state} {node.not_ready_reason}" for node in client.nodes.list()]
        for pool in POOLS:
            history = client.node_pools.history(pool, limit=15)
            lines += [f"{event.at} {event.kind} {event.node} {event.reason}" for event in history]
        lines += [read_log_text(host)[-3000:] for host in self.running.hosts]
        if name:
            workload = self.find(name)
            lines.append(f"{name}: {workload.phase} {workload.message}")
        return "\n".join(lines)


@pytest.fixture
def story(installing: InstallContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Story]:
    def installing_for_all(port: int, *options: str, **settings: str) -> AbstractContextManager[Installation]:
        more = {**slurm.env, "BERTH_INSTALLATION": "journey", "AWS_ENDPOINT_URL": ec2.url}
        return installing(port, *options, **settings, **more)

    with (
        ec2_account(monkeypatch) as ec2,
        slurm_cluster() as slurm,
        ssh_installation(installing_for_all, tmp_path, ["box-1", "box-2"], "--demo", gpus=2) as running,
    ):
        admin, dave = (sign_in(running.berth, name, tmp_path / name) for name in ("admin", "dave"))
        driver = running.hosts[1].directory / "sbin/nvidia-smi"
        driver.write_text(DRIVER.format(name="box-2", last=3))
        with ec2_machine(ec2, running.hosts[1], running.workspaces) as machine:
            yield Story(admin, dave, running, slurm, machine)


def create_pools(story: Story) -> None:
    """Create the pools, a quota for the pools with L4 GPUs, and a quota for the Slurm pool."""
    place, admin = story.running.place, story.admin
    (place / "hosts.yaml").write_text(yaml.safe_dump(story.running.entries(story.running.hosts[:1])))
    machines = {
        "metal": [
            "--provider", "ssh", "--nodes", "1", "--gpus-per-node", "2", "--gpu-model", "L4", "--hosts",
            str(place / "hosts.yaml"), "--key", str(story.running.key), "--accept-host-keys",
        ],
        "hpc": [
            "--provider", "slurm", "--nodes", "0:1", "--gpus-per-node", "2", "--set",
            f"provider_settings={provider_settings(story.slurm)}",
        ],
        "cloud": [
            "--provider", "aws", "--nodes", "0:1", "--gpus-per-node", "4", "--gpu-model", "L4",
            *(part for key, value in {
                "region": REGION, "instance_types": "[g6.12xlarge]", "subnets": f"[{subnets()[0]}]",
                "image_parameter": IMAGE_PARAMETER,
            }.items() for part in ("--set", f"provider_settings.{key}={value}")),
        ],
    }  # fmt: skip
    for name, options in machines.items():
        fast = [part for value in FAST for part in ("--set", value)]
        admin.berth("pool", "create", name, *options, "--cpu", "1", "--memory", "1024", *fast, "--yes")
    admin.berth("quota", "group", "create", "l4", "metal", "cloud")
    for owner in (["research", "--department"], ["vision"]):
        admin.berth("quota", "set", *owner, "--pool", "hpc", "--gpu", "2")
        admin.berth("quota", "set", *owner, "--pool", "l4", "--gpu", "4")


def test_workloads_use_owned_capacity_and_burst_to_the_cloud_after_the_burst_delay(story: Story) -> None:
    create_pools(story)
    burst = ("--burst-after", "1d")
    until(lambda: [node.state for node in story.admin.client().nodes.list(pool="metal")] == ["ready"], LONG,
          story.describe)  # fmt: skip

    # Each of the first two gangs fills a pool of the organization, in the order of the pools.
    story.submit("first", *burst)
    assert story.until_runs("first") == {"metal"}
    story.submit("second", *burst)
    assert story.until_runs("second") == {"hpc"}
    assert len(story.slurm.queue()) == 1

    check_that_the_third_gang_waits_for_its_burst_delay(story)
    burst_to_the_cloud(story)

    for name in ("first", "second", "third"):
        story.finish(name)
    until(lambda: story.slurm.queue() == [], LONG, story.describe)
    until(lambda: story.cloud.ec2.proxy.living() == set(), LONG, story.describe)


def check_that_the_third_gang_waits_for_its_burst_delay(story: Story) -> None:
    """Check that the third gang is pending because all machines are full, and that its price is shown."""
    submitted = story.submit("third", "--burst-after", "1d")
    price = "the workload may also start in the pool cloud, where 2 GPUs cost 2.30 per hour."
    assert price in " ".join(submitted.split())
    workloads, third = story.dave.client().workloads, story.find("third").id
    until(lambda: workloads.explain(third).blockers, LONG, lambda: story.describe("third"))
    explained = " ".join(story.dave.berth("why", "third").split())
    assert price in explained
    assert "GPUs" in workloads.get(third).message
    assert story.cloud.ec2.proxy.count("CreateFleet") == 0


def burst_to_the_cloud(story: Story) -> None:
    """Shorten the time after which a gang may use the cloud.

    EC2 then launches a machine, which runs the gang.
    """
    ec2 = story.cloud.ec2.proxy
    story.dave.berth("edit", "third", "--set", f"burst_after={BURST_SECONDS}")
    [instance] = until(ec2.living, LONG, lambda: story.describe("third"))
    [ordered] = [
        event.at for event in story.admin.client().node_pools.history("cloud") if event.kind == "provision"
    ]
    assert ordered >= story.find("third").submitted_at + timedelta(seconds=BURST_SECONDS)
    assert "starts with the machine" in story.cloud.boot(instance)
    assert story.until_runs("third") == {"cloud"}
    [node] = story.admin.client().nodes.list(pool="cloud")
    assert (node.instance_id, node.capacity.gpu) == (instance, 4)
