"""Test a quota that spans two pools of real machines with the same GPU model."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from berth.client.models.workloads import Workload
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import InstallContext, until
from tests.journeys.on_hosts.host_namespaces import NamespaceHost, needs_namespaces
from tests.journeys.on_hosts.ssh_installation import SshInstallation, read_log_text, ssh_installation

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3600), needs_namespaces]
LONG = 1200.0  # nodes take minutes to boot on a busy machine
POOLS = ("metal", "steel")
WORKS = 'cd "$BERTH_WORKSPACE"; while [ ! -e enough ]; do sleep 0.2; done'


@dataclass(frozen=True)
class Story:
    """Two hosts with two GPUs each, which become two pools."""

    admin: Terminal
    users: dict[str, Terminal]
    running: SshInstallation

    def submit(self, user: str, name: str, project: str) -> None:
        pools = [part for pool in POOLS for part in ("--pool", pool)]
        size = ["--gpu", "1", "--replicas", "2", "--cpu", "0.1", "--memory", "64", "--grace", "2s"]
        self.users[user].berth("submit", "-n", name, "-p", project, *pools, *size, "--", "sh", "-c", WORKS)

    def find(self, name: str) -> Workload:
        return self.admin.client().workloads.find(name)

    def reach(self, name: str, phase: str) -> Workload:
        until(lambda: self.find(name).phase == phase, LONG, self.describe)
        return self.find(name)

    def finish(self, name: str) -> None:
        (self.running.workspaces / self.find(name).id / "enough").touch()
        self.reach(name, "completed")

    def create_pool(self, name: str, host: NamespaceHost) -> None:
        hosts = self.running.place / f"{name}.yaml"
        hosts.write_text(yaml.safe_dump(self.running.entries([host])))
        self.admin.berth(
            "pool", "create", name, "--provider", "ssh", "--nodes", "1", "--gpus-per-node", "2",
            "--gpu-model", "L4", "--cpu", "1", "--memory", "1024", "--hosts", str(hosts),
            "--key", str(self.running.key), "--accept-host-keys", "--set", "reconcile_tick=1",
            "--set", "boot_timeout=3600", "--yes",
        )  # fmt: skip

    def node_states(self) -> list[str]:
        client = self.admin.client()
        return [node.state for pool in POOLS for node in client.nodes.list(pool=pool)]

    def describe(self) -> str:
        client = self.admin.client()
        lines = [f"{node.name} {node.state} {node.not_ready_reason}" for node in client.nodes.list()]
        lines += [f"{each.name} {each.phase} {each.message}" for each in client.workloads.list()]
        return "\n".join([*lines, *(read_log_text(host)[-3000:] for host in self.running.hosts)])


@pytest.fixture
def story(installing: InstallContext, tmp_path: Path) -> Iterator[Story]:
    with ssh_installation(installing, tmp_path, ["box-1", "box-2"], "--demo", gpus=2) as running:
        admin, dave, grace = (
            sign_in(running.berth, name, tmp_path / name) for name in ("admin", "dave", "grace")
        )
        yield Story(admin, {"dave": dave, "grace": grace}, running)


def test_project_can_use_its_group_quota_in_a_single_pool(story: Story) -> None:
    for pool, host in zip(POOLS, story.running.hosts, strict=True):
        story.create_pool(pool, host)
    story.admin.berth("quota", "group", "create", "l4", *POOLS)
    for owner in (["research", "--department"], ["vision"], ["product", "--department"], ["ads"]):
        story.admin.berth("quota", "set", *owner, "--pool", "l4", "--gpu", "2")
    until(lambda: story.node_states() == ["ready", "ready"], LONG, story.describe)

    # vision uses its quota in one pool, and borrows in the other.
    for name in ("first", "second"):
        story.submit("dave", name, "vision")
        story.reach(name, "running")
    assert {story.find(name).pool for name in ("first", "second")} == set(POOLS)

    # ads may have two GPUs in either pool: one of the gangs is reclaimed, and the other one stays.
    story.submit("grace", "ranking", "ads")
    story.reach("ranking", "running")
    with story.admin.client() as client:
        [eviction] = client.evictions.list()
    assert (eviction.kind, eviction.preemptor) == ("reclaim", "ads/ranking")
    other = ({"first", "second"} - {eviction.workload_name}).pop()
    assert story.find(other).phase == "running"
    assert story.find(other).preemptions == 0

    # The reclaimed gang waits although vision has no more than its quota, and starts when the other one ends.
    assert story.find(eviction.workload_name).phase == "pending"
    story.finish(other)
    story.reach(eviction.workload_name, "running")
    for name in (eviction.workload_name, "ranking"):
        story.finish(name)
