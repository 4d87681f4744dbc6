"""Test that the agent starts with its machine, which systemd really boots."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pools.joining.package import agent_package
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import InstallContext, until
from tests.journeys.machines.booted_machine import BootedMachine, needs_systemd
from tests.journeys.on_hosts.host_namespaces import SERVER, needs_namespaces
from tests.journeys.on_hosts.ssh_installation import read_log_text, ssh_installation
from tests.support.agents import NO_METADATA

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1800), needs_namespaces, needs_systemd]
LONG = 900.0  # Ray starts slowly on a busy machine
WORKS = """
cd "$BERTH_WORKSPACE" && echo "run $BERTH_RUN" >> starts
while [ ! -e enough ]; do sleep 0.2; done
"""


@dataclass(frozen=True)
class Story:
    """A pool of machines that join with a token, and a machine that has not joined yet."""

    admin: Terminal
    dave: Terminal
    machine: BootedMachine
    workspaces: Path
    agent: Path
    variables: dict[str, str]

    def run_agent(self, *words: str) -> str:
        return self.machine.run(sys.executable, "-S", str(self.agent), *words, **self.variables)

    def until_node_is_ready(self) -> None:
        nodes = self.admin.client().nodes
        until(lambda: [node.state for node in nodes.list(pool="metal")] == ["ready"], LONG, self.describe)

    def describe(self) -> str:
        client = self.admin.client()
        lines = [f"{node.name} {node.state} {node.not_ready_reason}" for node in client.nodes.list()]
        lines += [f"{event.kind} {event.node} {event.reason}" for event in client.node_pools.history("metal")]
        console = (self.machine.directory / "console").read_text()
        return "\n".join([*lines, console[-3000:], read_log_text(self.machine.host)])


@pytest.fixture
def story(installing: InstallContext, tmp_path: Path) -> Iterator[Story]:
    with ssh_installation(installing, tmp_path, ["box-1"], "--demo") as running:
        admin, dave = (sign_in(running.berth, name, tmp_path / name) for name in ("admin", "dave"))
        admin.berth(
            "pool", "create", "metal", "--provider", "static", "--runtime", "ray", "--nodes", "1",
            "--cpu", "1", "--memory", "256", "--set", "reconcile_tick=1",
        )  # fmt: skip
        for owner in (["research", "--department"], ["vision"]):
            admin.berth("quota", "set", *owner, "--pool", "metal", "--cpu", "1")
        issued = admin.json("machine", "token", "issue", "metal", "--machines", "1")
        agent = tmp_path / "berth-agent"
        agent.write_bytes(agent_package())
        machine = BootedMachine(running.hosts[0])
        variables = {
            "BERTH_URL": f"http://{SERVER}:{running.berth.port}", "BERTH_PLAIN_HTTP": "1",
            "BERTH_POOL": "metal", "BERTH_JOIN_TOKEN": issued["token"], "BERTH_NODE_PYTHON": sys.executable,
            "BERTH_NODE_WORKSPACES": str(running.workspaces), "BERTH_NODE_START_SECONDS": "840",
            **NO_METADATA,
        }  # fmt: skip
        try:
            yield Story(admin, dave, machine, running.workspaces, agent, variables)
        finally:
            machine.delete_control_groups()


def test_machine_rejoins_its_pool_after_a_power_failure(story: Story) -> None:
    machine, workloads = story.machine, story.dave.client().workloads
    machine.boot()
    assert "starts with the machine" in story.run_agent("install")
    story.until_node_is_ready()
    workload = workloads.submit({
        "name": "long", "project": "vision", "pools": ["metal"], "command": ["sh", "-c", WORKS],
        "roles": [{"name": "worker", "cpu": 0.1, "memory_mib": 64}],
    })  # fmt: skip
    starts = story.workspaces / workload.id / "starts"
    until(starts.exists, LONG, story.describe)
    [joined] = story.admin.client().node_pools.machines("metal")

    machine.cut_power()
    machine.boot()
    assert machine.run("systemctl", "is-active", "berth-agent").strip() == "active", "no user started it"
    until(lambda: starts.read_text() == "run 1\nrun 2\n", LONG, story.describe)
    story.until_node_is_ready()
    [rejoined] = story.admin.client().node_pools.machines("metal")
    assert (rejoined.joined_at, rejoined.node) == (joined.joined_at, "metal-0"), "it needs no second token"
    (starts.parent / "enough").touch()
    until(lambda: workloads.get(workload.id).phase == "completed", LONG, story.describe)

    assert "metal-0: stop script exited with 0" in story.run_agent("uninstall", "--force")
    machine.cut_power()
    machine.boot()
    assert "0 unit files" in machine.run("systemctl", "list-unit-files", "berth-agent.service")
    assert list((machine.directory / "units").rglob("*.service")) == []
