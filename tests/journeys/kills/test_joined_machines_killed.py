"""Test that random kills on joined machines lose no work, run nothing twice and leave nothing behind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

import pytest

from pools.joining.package import agent_package
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import InstallContext, until
from tests.journeys.kills.faults import Fault, Hanging, inject_random_faults, kill_berth
from tests.journeys.kills.hosts import (
    agent_and_node_faults,
    check_only_foreign_is_left,
    start_foreign_process,
)
from tests.journeys.kills.traffic import PATIENCE, Traffic, live_rows
from tests.journeys.on_hosts.host_namespaces import SERVER, NamespaceHost, needs_namespaces
from tests.journeys.on_hosts.ssh_installation import (
    ROLE,
    SshInstallation,
    read_log_text,
    set_quotas,
    ssh_installation,
)
from tests.support.agents import NO_METADATA

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(5400), needs_namespaces]
KILLS = int(os.environ.get("BERTH_KILLS", "100"))
SEED = int(os.environ.get("BERTH_KILLS_SEED") or SystemRandom().randrange(10_000))
LEAVE_OR_JOIN_CHANCE = 0.1


@dataclass
class Story:
    """A pool of machines whose own administrator makes them join and leave."""

    running: SshInstallation
    admin: Terminal
    traffic: Traffic
    random: Random
    token: str
    agent: Path
    hanging: Hanging = field(default_factory=Hanging)

    def faults(self) -> list[Fault]:
        faults = kill_berth(self.running.berth, self.running.start)
        for host in self.running.hosts:
            faults += agent_and_node_faults(host, self.hanging)
        return faults

    def between(self) -> None:
        self.traffic.step()
        if self.random.random() < LEAVE_OR_JOIN_CHANCE:
            host = self.random.choice(self.running.hosts)
            if self.random.random() < 0.5:
                self.leave(host)
            else:
                self.join(host)

    def join(self, host: NamespaceHost) -> bool:
        """Install or restart the agent. Return False if that fails, for example because Berth is down."""
        url = f"http://{SERVER}:{self.running.berth.port}"
        return self.run_agent(host, "install", "--url", url, "--pool", "metal", "--detached")

    def leave(self, host: NamespaceHost) -> bool:
        return self.run_agent(host, "uninstall", "--force")

    def run_agent(self, host: NamespaceHost, *words: str) -> bool:
        env = {
            "PATH": os.environ["PATH"], "HOME": "/root", "BERTH_JOIN_TOKEN": self.token,
            "BERTH_PLAIN_HTTP": "1", "BERTH_NODE_PYTHON": sys.executable,
            "BERTH_NODE_WORKSPACES": str(self.running.workspaces),
            "BERTH_NODE_START_SECONDS": "840",  # Ray starts slowly on a busy machine
            **NO_METADATA,
        }  # fmt: skip
        self.hanging.resume()  # the command would wait for an agent that hangs
        # The machine's name is its host name.
        enter = [
            "nsenter", f"--target={host.process.pid}", "--mount", "--net", "unshare", "--uts",
            "sh", "-c", 'hostname "$0"; exec "$@"', host.name,
        ]  # fmt: skip
        done = subprocess.run(
            [*enter, sys.executable, "-S", str(self.agent), *words],
            env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        print(f"{host.name}: {words[0]}: {done.returncode} {(done.stdout + done.stderr).strip()[-200:]}")
        return done.returncode == 0

    def describe(self) -> str:
        client = self.admin.client()
        history = client.node_pools.history("metal", limit=60)
        events = [f"{event.at} {event.kind} {event.reason}" for event in history]
        nodes = [f"{node.name} {node.state}" for node in client.nodes.list(pool="metal")]
        logs = [read_log_text(host) for host in self.running.hosts]
        return "\n".join([f"seed {SEED}", *nodes, *events, *logs])


@pytest.fixture
def story(installing: InstallContext, tmp_path: Path) -> Iterator[Story]:
    print(f"seed: BERTH_KILLS_SEED={SEED}")
    with ssh_installation(installing, tmp_path, ["box-1", "box-2"], "--demo") as running:
        users = {name: sign_in(running.berth, name, tmp_path / name) for name in ("admin", "dave", "grace")}
        create_pool(users["admin"])
        issued = users["admin"].json(
            "machine", "token", "issue", "metal", "--machines", "1000", "--expires", "7d"
        )
        agent = tmp_path / "berth-agent"
        agent.write_bytes(agent_package())
        random = Random(SEED)
        projects = {"vision": users["dave"], "ads": users["grace"]}
        traffic = Traffic(projects, "metal", ROLE, running.workspaces, random)
        story = Story(running, users["admin"], traffic, random, issued["token"], agent)
        for host in running.hosts:
            assert story.join(host)
        yield story


def create_pool(admin: Terminal) -> None:
    fast = ["reconcile_tick=1", "autoscale_cooldown=0", "autoscale_idle_timeout=10", "boot_failure_limit=0"]
    admin.berth(
        "pool", "create", "metal", "--provider", "static", "--runtime", "ray", "--nodes", "0:2",
        "--cpu", str(ROLE["cpu"]), "--memory", "256",
        *[part for value in fast for part in ("--set", value)],
    )  # fmt: skip
    set_quotas(admin)


def test_no_pods_are_lost_duplicated_or_leaked_after_random_kills(story: Story) -> None:
    hosts = story.running.hosts
    theirs = [start_foreign_process(host) for host in hosts]
    inject_random_faults(story.faults(), story.hanging, story.random, KILLS, story.between)

    until(lambda: all(story.join(host) for host in hosts), PATIENCE, story.describe)
    story.traffic.finish(story.admin.client(), story.describe)
    story.traffic.check()

    until(lambda: all(story.leave(host) for host in hosts), PATIENCE, story.describe)
    until(lambda: not live_rows(story.running.berth), PATIENCE, lambda: live_rows(story.running.berth))
    for host, process in zip(hosts, theirs, strict=True):
        check_only_foreign_is_left(host, process, story.describe)
