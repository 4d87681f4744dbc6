"""Test the path from machines with SSH to a reclaimed gang that resumes, and back to clean machines."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.journeys.command import Terminal, sign_in
from tests.journeys.conftest import InstallContext
from tests.journeys.host_namespaces import NamespaceHost, needs_namespaces
from tests.journeys.installation import until
from tests.journeys.ssh_installation import (
    ROLE,
    SshInstallation,
    agents,
    read_log_text,
    set_quotas,
    ssh_installation,
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3600), needs_namespaces]
LONG = 900.0  # nodes take minutes to boot on a busy machine
# Rank 0 counts steps and continues from the last step of the previous run.
COUNT = """
trap 'echo "signal of run $BERTH_RUN at step $step"' USR1
step=$(cat "$BERTH_WORKSPACE/step-$RANK" 2>/dev/null || echo 0)
echo "run $BERTH_RUN starts at step $step on $BERTH_NODE"
while [ ! -e "$BERTH_WORKSPACE/enough" ]; do
  step=$((step + 1)); echo $step > "$BERTH_WORKSPACE/new-$RANK"
  mv "$BERTH_WORKSPACE/new-$RANK" "$BERTH_WORKSPACE/step-$RANK"; sleep 0.2
done
"""
WAIT = 'until [ -e "$BERTH_WORKSPACE/enough" ]; do sleep 0.2; done'


@dataclass(frozen=True)
class Story:
    """An installation, and two hosts that no pool uses yet."""

    admin: Terminal
    dave: Terminal
    grace: Terminal
    running: SshInstallation

    @property
    def hosts(self) -> list[NamespaceHost]:
        return self.running.hosts

    @property
    def workspaces(self) -> Path:
        return self.running.workspaces

    def states(self) -> dict[str, str]:
        return {host.name: host.state for host in self.admin.client().node_pools.ssh_hosts("metal")}

    def nodes(self) -> list[str]:
        return [node.state for node in self.admin.client().nodes.list(pool="metal")]

    def submit(self, user: Terminal, name: str, project: str, command: str, code: Path | None = None) -> str:
        """Submit a gang that needs both hosts. Return its ID."""
        role = {"name": "worker", "replicas": 2, **ROLE}
        document = {
            "name": name, "project": project, "pools": ["metal"], "command": ["sh", "-c", command],
            "roles": [role], "grace_period_seconds": 5, "preemption": {"signal": "USR1", "lead": 2},
        }  # fmt: skip
        return user.client().workloads.submit(document, code=code).id

    def until_phase(self, user: Terminal, name: str, phase: str) -> None:
        client = user.client()
        until(lambda: client.workloads.find(name).phase == phase, LONG, details=self.describe)

    def describe(self) -> str:
        client = self.admin.client().node_pools
        hosts = [host.plain() for host in client.ssh_hosts("metal")]
        events = [event.reason for event in client.history("metal", limit=20)]
        return yaml.safe_dump([hosts, events]) + "\n".join(read_log_text(host) for host in self.hosts)


@pytest.fixture
def story(installing: InstallContext, tmp_path: Path) -> Iterator[Story]:
    with ssh_installation(installing, tmp_path, ["box-1", "box-2"]) as running:
        admin, dave, grace = (
            sign_in(running.berth, name, tmp_path / name) for name in ("admin", "dave", "grace")
        )
        yield Story(admin, dave, grace, running)


def test_gang_on_ssh_hosts_is_reclaimed_and_resumes(story: Story) -> None:
    create_pool_after_a_preview(story)
    set_quotas(story.admin)
    handle = story.submit(story.dave, "training", "vision", COUNT)
    story.until_phase(story.dave, "training", "running")
    step = story.workspaces / handle / "step-0"
    until(lambda: step.exists() and int(step.read_text()) >= 3)

    program = story.running.place / "program"
    program.mkdir()
    (program / "wait.sh").write_text(WAIT)
    ranking = story.submit(story.grace, "ranking", "ads", "sh wait.sh", code=program)
    story.until_phase(story.grace, "ranking", "running")
    reached = int(step.read_text())
    assert story.dave.client().workloads.find("training").phase == "pending"
    (story.workspaces / ranking / "enough").touch()
    story.until_phase(story.grace, "ranking", "completed")
    story.until_phase(story.dave, "training", "running")
    begins = f"run 2 starts at step {reached} on"
    log = story.dave.client().workloads.log
    until(lambda: begins in log(handle, pod="worker-0").data.decode(), details=story.describe)
    notice = "signal of run 1 at step"
    until(lambda: notice in log(handle, pod="worker-0", run=1).data.decode(), details=story.describe)

    check_repair(story)
    assert story.dave.client().workloads.find("training").phase == "running"
    (story.workspaces / handle / "enough").touch()
    story.until_phase(story.dave, "training", "completed")
    assert story.dave.client().workloads.find("training").run == 2
    check_removal(story)


def create_pool_after_a_preview(story: Story) -> None:
    """Create the pool as an admin does who has not pinned the hosts' keys yet."""
    file = story.running.place / "hosts.yaml"
    file.write_text(yaml.safe_dump(story.running.entries(story.hosts)))
    create = [
        "pool", "create", "metal", "--provider", "ssh", "--hosts", str(file),
        "--key", str(story.running.key), "--nodes", "2", "--cpu", "1", "--memory", "256",
        "--set", "reconcile_tick=1",
    ]  # fmt: skip
    assert "has not been accepted" in story.admin.berth(*create, "--dry-run")
    shown = story.admin.berth(*create, "--accept-host-keys", "--dry-run")
    assert "2 of 2 nodes can be used" in shown
    for host in story.hosts:
        assert not host.home.exists(), "a preview changes nothing"
    story.admin.berth(*create, "--accept-host-keys")
    joined = {host.name: "joined" for host in story.hosts}
    until(lambda: story.states() == joined, LONG, details=story.describe)
    until(lambda: story.nodes() == ["ready", "ready"], LONG, details=story.describe)


def check_repair(story: Story) -> None:
    """Check that Berth starts a lost agent again."""
    machines = story.admin.client().node_pools.machines
    seen = {machine.name: machine.last_seen_at for machine in machines("metal")}
    kill_agent(story.hosts[1])
    until(lambda: agents(story.hosts[1]), LONG, details=story.describe)
    until(lambda: all(each.last_seen_at > seen[each.name] for each in machines("metal")), LONG)


def check_removal(story: Story) -> None:
    """Check that removed hosts are drained and left clean."""
    (story.hosts[1].directory / "lib/theirs").write_text("not Berth's")
    settings = "provider_settings={hosts: []}"
    story.admin.berth("pool", "edit", "metal", "--nodes", "0:2", "--set", settings, "--yes")
    until(lambda: story.states() == {}, LONG, details=story.describe)
    for host in story.hosts:
        assert not host.home.exists()
        assert agents(host) == []
    assert (story.hosts[1].directory / "lib/theirs").exists()


def kill_agent(host: NamespaceHost) -> None:
    for pid in agents(host):
        os.kill(pid, signal.SIGKILL)
