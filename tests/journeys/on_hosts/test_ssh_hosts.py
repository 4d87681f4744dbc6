"""Test the first chapter of the admin guide on machines with SSH. At the end, the machines are clean
again.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.journeys.command import Terminal, sign_in
from tests.journeys.first_chapter import LONG, FirstChapter
from tests.journeys.guide import run_as_written
from tests.journeys.installation import InstallContext, until
from tests.journeys.on_hosts.host_namespaces import NamespaceHost, needs_namespaces
from tests.journeys.on_hosts.ssh_installation import SshInstallation, agents, read_log_text, ssh_installation

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3600), needs_namespaces]
# The hosts have four GPUs each, as in the guide, but share the cores and the memory of this machine.
SMALLER = {"--cpu 32 --memory 256Gi": "--cpu 1 --memory 256Mi"}
NOT_ACCEPTED = "has not been accepted"


@dataclass(frozen=True)
class Story:
    """An empty installation and two hosts that no pool uses yet."""

    admin: Terminal
    running: SshInstallation

    @property
    def hosts(self) -> list[NamespaceHost]:
        return self.running.hosts

    def states(self) -> dict[str, str]:
        return {host.name: host.state for host in self.admin.client().node_pools.ssh_hosts("metal")}

    def nodes(self) -> list[str]:
        return [node.state for node in self.admin.client().nodes.list(pool="metal")]

    def describe(self) -> str:
        client = self.admin.client().node_pools
        hosts = [host.to_dict() for host in client.ssh_hosts("metal")]
        events = [event.reason for event in client.history("metal", limit=20)]
        return yaml.safe_dump([hosts, events]) + "\n".join(read_log_text(host) for host in self.hosts)


@pytest.fixture
def story(installing_empty: InstallContext, tmp_path: Path) -> Iterator[Story]:
    with ssh_installation(installing_empty, tmp_path, ["box-1", "box-2"], gpus=4) as running:
        yield Story(sign_in(running.berth, "admin", tmp_path / "admin"), running)


def test_gang_on_ssh_hosts_is_reclaimed_and_resumes(story: Story, tmp_path: Path) -> None:
    chapter = FirstChapter(
        story.admin, tmp_path, story.running.workspaces, SMALLER,
        "--cpu 0.1 --memory 64 --grace 5s --preemption-signal USR1@2s", story.describe,
    )  # fmt: skip
    create_pool_after_a_preview(story, chapter)
    chapter.create_projects()
    chapter.submit_training()
    assert chapter.log(1).count("GPU-box-") == 4, "each worker gets the GPUs of a host"
    step = chapter.submit_ranking()
    assert "notice at" in chapter.log(1)
    chapter.resume_training(step)

    check_repair(story)
    assert chapter.find("training").phase == "running"
    chapter.finish("training")
    assert chapter.find("training").run == 2
    check_removal(story)


def create_pool_after_a_preview(story: Story, chapter: FirstChapter) -> None:
    """Create the pool as an admin who has not pinned the hosts' keys yet."""
    place = story.running.place
    (place / "hosts.yaml").write_text(yaml.safe_dump(story.running.entries(story.hosts)))
    (place / ".ssh").mkdir()
    shutil.copy(story.running.key, place / ".ssh/berth")
    create = chapter.pool_command("ssh", "--set", "reconcile_tick=1")

    def run(command: str) -> str:
        return run_as_written(story.admin, command, place, HOME=str(place))

    assert NOT_ACCEPTED in run(f"{create.replace(' --accept-host-keys', '')} --dry-run")
    shown = run(f"{create} --dry-run")
    assert "2 of 2 nodes can be used: 8 GPUs" in shown
    for host in story.hosts:
        assert not host.home.exists(), "a preview changes nothing"
    run(create)
    joined = {host.name: "joined" for host in story.hosts}
    until(lambda: story.states() == joined, LONG, details=story.describe)
    until(lambda: story.nodes() == ["ready", "ready"], LONG, details=story.describe)


def check_repair(story: Story) -> None:
    """Check that Berth restarts a lost agent."""
    machines = story.admin.client().node_pools.machines
    seen = {machine.name: machine.last_seen_at for machine in machines("metal")}
    kill_agent(story.hosts[1])
    until(lambda: agents(story.hosts[1]), LONG, details=story.describe)
    until(lambda: all(each.last_seen_at > seen[each.name] for each in machines("metal")), LONG)


def check_removal(story: Story) -> None:
    """Check that removed hosts are drained and cleaned up."""
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
