"""Test a pool of different machines that loses the machine of its Ray head."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from berth.client.models.workloads import Workload
from pools.joining.package import agent_package
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import InstallContext, until
from tests.journeys.on_hosts.host_namespaces import DRIVER, SERVER, NamespaceHost, needs_namespaces
from tests.journeys.on_hosts.ssh_installation import SshInstallation, read_log_text, ssh_installation
from tests.support.agents import NO_METADATA

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(2400), needs_namespaces]
LONG = 900.0  # Ray starts slowly on a busy machine
WORKS = """
cd "$BERTH_WORKSPACE" && echo "$BERTH_POD_ID on $BERTH_NODE with $CUDA_VISIBLE_DEVICES" >> starts
while [ ! -e enough ]; do sleep 0.2; done
"""


@dataclass(frozen=True)
class Story:
    """A pool of two nodes, and three machines that have not joined yet."""

    running: SshInstallation
    admin: Terminal
    dave: Terminal
    agent: Path
    token: str

    def join(self, host: NamespaceHost) -> None:
        env = {
            "PATH": os.environ["PATH"], "HOME": "/root", "BERTH_JOIN_TOKEN": self.token,
            "BERTH_URL": f"http://{SERVER}:{self.running.berth.port}", "BERTH_POOL": "metal",
            "BERTH_PLAIN_HTTP": "1", "BERTH_NODE_PYTHON": sys.executable,
            "BERTH_NODE_WORKSPACES": str(self.running.workspaces), "BERTH_NODE_START_SECONDS": "840",
            **NO_METADATA,
        }  # fmt: skip
        enter = [
            "nsenter", f"--target={host.process.pid}", "--mount", "--net", "unshare", "--uts", "sh", "-c",
            'hostname "$0"; exec "$@"', host.name,
        ]  # fmt: skip
        command = [sys.executable, "-S", str(self.agent), "install", "--detached"]
        subprocess.run([*enter, *command], env=env, stdin=subprocess.DEVNULL, check=True, timeout=300)

    def until_nodes(self, *machines: str) -> None:
        """Wait until the nodes, in this order, are ready on these machines."""

        def reached() -> bool:
            nodes = {node.name: node.state for node in self.admin.client().nodes.list(pool="metal")}
            serving = {
                machine.node: machine.name
                for machine in self.admin.client().node_pools.machines("metal")
                if machine.node
            }
            wanted = {f"metal-{number}": name for number, name in enumerate(machines)}
            return serving == wanted and nodes == dict.fromkeys(wanted, "ready")

        until(reached, LONG, self.describe)

    def submit(self, name: str, gpus: int) -> Workload:
        return self.dave.client().workloads.submit({
            "name": name, "project": "vision", "pools": ["metal"], "command": ["sh", "-c", WORKS],
            "roles": [{"name": "worker", "gpu": gpus, "cpu": 0.1, "memory_mib": 64}],
        })  # fmt: skip

    def starts(self, workload: Workload) -> list[str]:
        """Wait until a workload has started. Return a line with pod, node and devices for each start."""
        file = self.running.workspaces / workload.id / "starts"
        until(file.exists, LONG, self.describe)
        return file.read_text().splitlines()

    def finish(self, workload: Workload) -> Workload:
        (self.running.workspaces / workload.id / "enough").touch()
        workloads = self.dave.client().workloads
        until(lambda: workloads.get(workload.id).phase == "completed", LONG, self.describe)
        return workloads.get(workload.id)

    def describe(self) -> str:
        client = self.admin.client()
        lines = [f"{node.name} {node.state} {node.not_ready_reason}" for node in client.nodes.list()]
        lines += [f"{each.name} {each.state} {each.node}" for each in client.node_pools.machines("metal")]
        lines += [f"{event.kind} {event.node} {event.reason}" for event in client.node_pools.history("metal")]
        return "\n".join([*lines, *map(read_log_text, self.running.hosts)])


@pytest.fixture
def story(installing: InstallContext, tmp_path: Path) -> Iterator[Story]:
    names = ["box-1", "box-2", "box-3"]
    with ssh_installation(installing, tmp_path, names, "--demo", gpus=2) as running:
        driver = running.hosts[1].directory / "sbin/nvidia-smi"
        driver.write_text(DRIVER.format(name="box-2", last=3))
        admin, dave = (sign_in(running.berth, name, tmp_path / name) for name in ("admin", "dave"))
        admin.berth(
            "pool", "create", "metal", "--provider", "static", "--runtime", "ray", "--nodes", "2",
            "--gpus-per-node", "2", "--cpu", "1", "--memory", "256", "--set", "reconcile_tick=1",
        )  # fmt: skip
        for owner in (["research", "--department"], ["vision"]):
            admin.berth("quota", "set", *owner, "--pool", "metal", "--gpu", "6")
        token = admin.json("machine", "token", "issue", "metal", "--machines", "3")["token"]
        agent = tmp_path / "berth-agent"
        agent.write_bytes(agent_package())
        yield Story(running, admin, dave, agent, token)


def test_pods_on_other_machines_survive_the_loss_of_the_ray_head(story: Story) -> None:
    head, large, spare = story.running.hosts
    for host in (head, large, spare):
        story.join(host)
        story.until_nodes(*["box-1", "box-2"][: story.running.hosts.index(host) + 1])
    # The nodes have the GPUs of their machines: only the second machine has four.
    workload = story.submit("large", 4)
    [start] = story.starts(workload)
    assert start.count("GPU-box-2-") == 4
    assert " on metal-1 " in start

    for pid in head.pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    story.until_nodes("box-3", "box-2")
    after = story.submit("after", 2)
    [on_new_head] = story.starts(after)
    assert on_new_head.count("GPU-box-3-") == 2
    assert story.finish(after).run == 1
    assert story.starts(workload) == [start], "its pod never stopped"
    ended = story.finish(workload)
    assert (ended.run, ended.restarts, ended.preemptions) == (1, 0, 0)
