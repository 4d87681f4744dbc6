"""Test that random kills around SSH hosts lose no work, run nothing twice and leave nothing behind."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

import pytest
import yaml

from berth.client.errors import ClientError
from pools.providers.ssh.endpoint import normalize_host_key
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import InstallContext, until
from tests.journeys.kills.faults import Fault, Hanging, inject_random_faults, kill, kill_berth
from tests.journeys.kills.hosts import (
    agent_and_node_faults,
    check_only_foreign_is_left,
    running,
    start_foreign_process,
)
from tests.journeys.kills.traffic import PATIENCE, Traffic, live_rows
from tests.journeys.on_hosts.host_namespaces import NamespaceHost, needs_namespaces
from tests.journeys.on_hosts.ssh_installation import (
    ROLE,
    SshInstallation,
    read_log_text,
    set_quotas,
    ssh_installation,
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(5400), needs_namespaces]
KILLS = int(os.environ.get("BERTH_KILLS", "100"))
SEED = int(os.environ.get("BERTH_KILLS_SEED") or SystemRandom().randrange(10_000))
EDIT_CHANCE = 0.1


@dataclass
class Story:
    """A pool of SSH hosts whose list of hosts changes during the test."""

    running: SshInstallation
    admin: Terminal
    traffic: Traffic
    random: Random
    hanging: Hanging = field(default_factory=Hanging)

    def faults(self) -> list[Fault]:
        faults = kill_berth(self.running.berth, self.running.start)
        for host in self.running.hosts:
            faults += self.faults_of(host)
        return faults

    def faults_of(self, host: NamespaceHost) -> list[Fault]:
        def server() -> list[int]:
            return [host.process.pid]

        name, connections = host.name, running(host, "sshd: root")
        return [
            *agent_and_node_faults(host, self.hanging),
            kill(f"connection of {name}", connections, 2),
            kill(f"server of {name}", server, then=host.restart),
            self.hanging.hang(f"connection of {name}", connections, 2),
            self.hanging.hang(f"server of {name}", server),
        ]

    def between(self) -> None:
        self.traffic.step()
        if self.random.random() < EDIT_CHANCE:
            with suppress(ClientError):  # Berth is down, or a host is still being removed
                self.edit(self.random.sample(self.running.hosts, self.random.randint(0, 2)))

    def edit(self, hosts: list[NamespaceHost]) -> None:
        entries = self.running.entries(hosts)
        for host, entry in zip(hosts, entries, strict=True):
            entry["host_key"] = normalize_host_key((host.directory / "host_key.pub").read_text())
        self.admin.client().node_pools.edit("metal", {"provider_settings": {"hosts": entries}})

    def describe(self) -> str:
        client = self.admin.client().node_pools
        events = [f"{event.at} {event.kind} {event.reason}" for event in client.history("metal", limit=60)]
        hosts = [host.to_dict() for host in client.ssh_hosts("metal")]
        nodes = [f"{node.name} {node.state}" for node in self.admin.client().nodes.list(pool="metal")]
        logs = [read_log_text(host) for host in self.running.hosts]
        return "\n".join([f"seed {SEED}", yaml.safe_dump(hosts), *nodes, *events, *logs])


@pytest.fixture
def story(installing: InstallContext, tmp_path: Path) -> Iterator[Story]:
    print(f"seed: BERTH_KILLS_SEED={SEED}")
    with ssh_installation(installing, tmp_path, ["box-1", "box-2"], "--demo") as running:
        users = {name: sign_in(running.berth, name, tmp_path / name) for name in ("admin", "dave", "grace")}
        create_pool(running, users["admin"])
        random = Random(SEED)
        projects = {"vision": users["dave"], "ads": users["grace"]}
        traffic = Traffic(projects, "metal", ROLE, running.workspaces, random)
        yield Story(running, users["admin"], traffic, random)


def create_pool(running: SshInstallation, admin: Terminal) -> None:
    file = running.place / "hosts.yaml"
    file.write_text(yaml.safe_dump(running.entries(running.hosts)))
    fast = ["reconcile_tick=1", "autoscale_cooldown=0", "autoscale_idle_timeout=10", "boot_failure_limit=0"]
    admin.berth(
        "pool", "create", "metal", "--provider", "ssh", "--hosts", str(file), "--key", str(running.key),
        "--nodes", "0:2", "--cpu", str(ROLE["cpu"]), "--memory", "256", "--accept-host-keys",
        *[part for value in fast for part in ("--set", value)],
    )  # fmt: skip
    set_quotas(admin)


def test_no_pods_are_lost_duplicated_or_leaked_after_random_kills(story: Story) -> None:
    theirs = [start_foreign_process(host) for host in story.running.hosts]
    inject_random_faults(story.faults(), story.hanging, story.random, KILLS, story.between)

    until(lambda: try_to_edit(story, story.running.hosts), PATIENCE, story.describe)
    story.traffic.finish(story.admin.client(), story.describe)
    story.traffic.check()

    until(lambda: try_to_edit(story, []), PATIENCE, story.describe)
    until(lambda: not list(story.admin.client().node_pools.ssh_hosts("metal")), PATIENCE, story.describe)
    until(lambda: not live_rows(story.running.berth), PATIENCE, lambda: live_rows(story.running.berth))
    for host, process in zip(story.running.hosts, theirs, strict=True):
        check_only_foreign_is_left(host, process, story.describe)


def try_to_edit(story: Story, hosts: list[NamespaceHost]) -> bool:
    try:
        story.edit(hosts)
    except ClientError:  # a host is still being removed
        return False
    return True
