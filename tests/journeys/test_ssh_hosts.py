"""Test the way from machines with SSH to a reclaimed gang that resumes, and back to clean machines."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.journeys.command import sign_in
from tests.journeys.conftest import InstallContext
from tests.journeys.host_namespaces import SERVER, NamespaceHost, namespace_hosts, needs_namespaces
from tests.journeys.installation import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900), needs_namespaces]
LONG = 300.0
# Rank 0 counts steps and continues from the last one of the former run.
COUNT = """
step=$(cat "$BERTH_WORKSPACE/step-$RANK" 2>/dev/null || echo 0)
echo "run $BERTH_RUN starts at step $step on $BERTH_NODE"
while [ ! -e "$BERTH_WORKSPACE/enough" ]; do
  step=$((step + 1)); echo $step > "$BERTH_WORKSPACE/new-$RANK"
  mv "$BERTH_WORKSPACE/new-$RANK" "$BERTH_WORKSPACE/step-$RANK"; sleep 0.2
done
"""


def gang(name: str, project: str, command: str) -> dict[str, Any]:
    return {
        "name": name, "project": project, "pools": ["metal"], "command": ["sh", "-c", command],
        "roles": [{"name": "worker", "replicas": 2, "cpu": 1, "memory_mib": 64}], "grace_period_seconds": 5,
    }  # fmt: skip


def test_gang_on_ssh_hosts_is_reclaimed_and_resumes(installing: InstallContext, tmp_path: Path) -> None:
    workspaces = tmp_path / "workspaces"
    workspaces.mkdir()
    workspaces.chmod(0o777)
    names = ["box-1", "box-2"]
    with namespace_hosts(tmp_path, names) as (hosts, key), installing(BERTH_PLAIN_HTTP="1") as berth:
        berth.end()
        berth.settings |= {
            "BERTH_PUBLIC_URL": f"http://{SERVER}:{berth.port}", "BERTH_ALLOWED_HOSTS": f"{SERVER},127.0.0.1",
        }  # fmt: skip
        berth.start("--demo", "--host", "0.0.0.0")
        admin, dave, grace = (sign_in(berth, name, tmp_path / name) for name in ("admin", "dave", "grace"))
        client, vision, ads = admin.client(), dave.client(), grace.client()

        def phase(user: Any, name: str) -> str:
            return str(user.workloads.find(name).phase)

        def states() -> dict[str, str]:
            return {host.name: host.state for host in client.node_pools.ssh_hosts("metal")}

        def story() -> str:
            hosts_now = [host.plain() for host in client.node_pools.ssh_hosts("metal")]
            events = [event.reason for event in client.node_pools.history("metal", limit=20)]
            return yaml.safe_dump([hosts_now, events]) + "\n".join(log_of(host) for host in hosts)

        env = {"BERTH_NODE_PYTHON": sys.executable, "BERTH_NODE_WORKSPACES": str(workspaces)}
        listed = [{"name": host.name, "address": host.address, "env": env} for host in hosts]
        (tmp_path / "hosts.yaml").write_text(yaml.safe_dump(listed))
        create = [
            "pool", "create", "metal", "--provider", "ssh", "--hosts", str(tmp_path / "hosts.yaml"),
            "--key", str(key), "--nodes", "2", "--cpu", "1", "--memory", "256", "--set", "reconcile_tick=1",
        ]  # fmt: skip
        shown = admin.berth(*create, "--dry-run")
        assert "has not been accepted" in shown
        shown = admin.berth(*create, "--accept-host-keys", "--dry-run")
        assert "2 of 2 nodes can be used" in shown
        assert list(hosts[0].home.iterdir()) == [hosts[0].home / "machine-id"], "a preview changes nothing"
        admin.berth(*create, "--accept-host-keys")
        until(lambda: states() == dict.fromkeys(names, "joined"), LONG, details=story)
        until(
            lambda: [node.state for node in client.nodes.list(pool="metal")] == ["ready"] * 2, LONG,
            details=story,
        )  # fmt: skip

        # ads has a quota for both nodes. vision borrows them, and is reclaimed.
        cores = os.cpu_count() or 1
        for owner in (["product", "--department"], ["ads"]):
            admin.berth("quota", "set", *owner, "--pool", "metal", "--cpu", str(2 * cores))
        for owner in (["research", "--department"], ["vision"]):
            admin.berth("quota", "set", *owner, "--pool", "metal", "--cpu", "0")
        training = gang("training", "vision", COUNT)
        training["roles"][0]["cpu"] = cores
        vision.workloads.submit(training)
        until(lambda: phase(vision, "training") == "running", LONG, details=story)
        handle = vision.workloads.find("training").id
        step = workspaces / handle / "step-0"
        until(lambda: step.exists() and int(step.read_text()) >= 3)
        ranking = gang("ranking", "ads", 'until [ -e "$BERTH_WORKSPACE/enough" ]; do sleep 0.2; done')
        ranking["roles"][0]["cpu"] = cores
        ads.workloads.submit(ranking)
        until(lambda: phase(ads, "ranking") == "running", LONG, details=story)
        reached = int(step.read_text())
        assert phase(vision, "training") == "pending"
        (workspaces / ads.workloads.find("ranking").id / "enough").touch()
        until(lambda: phase(ads, "ranking") == "completed", LONG)
        until(lambda: phase(vision, "training") == "running", LONG, details=story)
        log = until(lambda: vision.workloads.log(handle, pod="worker-0").data.decode())
        assert f"run 2 starts at step {reached} on" in log

        # A lost agent is started again. The pods continue.
        seen = {machine.name: machine.last_seen_at for machine in client.node_pools.machines("metal")}
        kill_agent(hosts[1])
        until(
            lambda: agents(hosts[1])
            and all(m.last_seen_at > seen[m.name] for m in client.node_pools.machines("metal")),
            LONG, details=story,
        )  # fmt: skip
        assert (phase(vision, "training"), vision.workloads.find("training").run) == ("running", 2)
        (workspaces / handle / "enough").touch()
        until(lambda: phase(vision, "training") == "completed", LONG)

        # Removed hosts are drained and left clean.
        (hosts[1].directory / "lib/theirs").write_text("not Berth's")
        admin.berth(
            "pool", "edit", "metal", "--nodes", "0:2", "--set", "provider_settings={hosts: []}", "--yes"
        )
        until(lambda: states() == {}, LONG, details=story)
        for host in hosts:
            assert not host.home.exists()
            assert agents(host) == []
        assert (hosts[1].directory / "lib/theirs").exists()


def agents(host: NamespaceHost) -> list[int]:
    """Return the processes of the agent and of its supervisor."""
    return [
        pid for pid in host.pids() if "/berth-machine/" in command_of(pid) and "ray" not in command_of(pid)
    ]


def kill_agent(host: NamespaceHost) -> None:
    for pid in agents(host):
        os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def log_of(host: NamespaceHost) -> str:
    files = [host.home / "supervisor.output", host.home / "start.output", host.directory / "log"]
    return "\n".join(f"{file}:\n{file.read_text()[-3000:]}" for file in files if file.exists())
