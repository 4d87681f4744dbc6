"""Test retry rules with real processes in a running installation."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from berth.client import Client
from pools.runtimes.pod_dir import PodDir
from tests.journeys.command import Terminal
from tests.journeys.installation import PATIENCE, ROOT, Installation, until

pytestmark = pytest.mark.timeout(900)
ALLOCATE = "python3 -c 'print(len(bytearray(200 << 20)))'"


def submit(client: Client, name: str, command: str, *rules: dict[str, Any], **changes: Any) -> Any:
    role = {"name": "worker", "replicas": 1, **changes.pop("role", {})}
    document = {"name": name, "project": "vision", "command": command, "roles": [role], "retry": list(rules)}
    return client.workloads.submit({**document, **changes})


def ended(client: Client, workload: Any) -> Any:
    until(lambda: client.workloads.get(workload.id).phase in ("completed", "failed"), PATIENCE)
    return client.workloads.get(workload.id)


@pytest.mark.heavy
def test_documented_example_restarts_until_it_completes(
    dave_on_shared_berth: Terminal, tmp_path: Path
) -> None:
    guide = (ROOT / "docs" / "researchers" / "evictions-and-failures.md").read_text()
    example = guide.partition("## Retry after failures")[2].split("```")[1]
    (tmp_path / "berth").write_text(f'#!/bin/sh\nexec {sys.executable} -m berth.cli.main "$@"\n')
    (tmp_path / "berth").chmod(0o755)
    env = {key: value for key, value in os.environ.items() if not key.startswith("BERTH_")} | {
        "XDG_CONFIG_HOME": str(dave_on_shared_berth.config),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["sh", "-e", "-c", example], cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
        timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, "run 3" in done.stdout) == (0, True), (done.stdout, done.stderr)
    described = dave_on_shared_berth.berth("describe", "flaky")
    assert "2 after exit code 75" in described
    assert "Restarting the gang: restart 2 of at most 3" in described
    dave_on_shared_berth.berth("delete", "flaky")


@pytest.mark.heavy
def test_retry_rules_apply_to_signals_and_time_limits(dave_on_shared_berth: Terminal) -> None:
    client = dave_on_shared_berth.client()
    command = "case $BERTH_RUN in 1) kill -SEGV $$;; 2) exec sleep 600;; *) echo third;; esac"
    rules = ({"on": ["SEGV"], "max": 1, "backoff": 1}, {"on": ["timeout"], "max": 1, "backoff": 1})
    workload = ended(client, submit(client, "signalled", command, *rules, max_runtime=2))
    assert (workload.phase, workload.run) == ("completed", 3), workload.message
    assert workload.retries == {"SIGSEGV": 1, "timeout": 1}
    client.workloads.delete(workload.id)


@pytest.mark.heavy
def test_retry_rule_applies_to_a_lost_pod(shared_berth: Installation, dave_on_shared_berth: Terminal) -> None:
    # The pod's shim is killed, as if its node had lost it.
    client = dave_on_shared_berth.client()
    rule = {"on": ["node_lost"], "max": 1, "backoff": 1}
    workload = submit(client, "unlucky", "test $BERTH_RUN = 2 || exec sleep 600", rule)
    until(lambda: client.workloads.get(workload.id).phase == "running")
    (pod,) = client.workloads.pods(workload.id)
    (directory,) = (path for path in shared_berth.home.rglob(pod.id) if (path / "lock").exists())
    shim = PodDir(directory).shim_pid()
    assert shim
    os.kill(shim, signal.SIGKILL)
    workload = ended(client, workload)
    assert (workload.phase, workload.run, workload.retries) == ("completed", 2, {"node_lost": 1})
    client.workloads.delete(workload.id)


@pytest.mark.heavy
def test_pod_that_runs_out_of_memory_restarts_with_more_memory(dave_on_shared_berth: Terminal) -> None:
    client = dave_on_shared_berth.client()
    (node, *_) = client.nodes.list()
    if node.isolation is None or "memory" not in node.isolation.limits:
        pytest.skip("this machine cannot limit the memory of pods")
    rule = {"on": ["out_of_memory"], "memory_factor": 4.0, "memory_max_mib": 512, "backoff": 1}
    role = {"limit": {"memory_mib": 64}}
    workload = ended(client, submit(client, "hungry", ALLOCATE, rule, role=role))
    assert (workload.phase, workload.run) == ("completed", 2), workload.message
    assert workload.retries == {"out_of_memory": 1}
    assert workload.spec["roles"][0]["limit"] == {"memory_mib": 256}
    client.workloads.delete(workload.id)


@pytest.mark.heavy
def test_documented_example_saves_a_checkpoint_on_the_signal_and_resumes_from_it(
    dave_on_shared_berth: Terminal, tmp_path: Path
) -> None:
    guide = (ROOT / "docs" / "researchers" / "evictions-and-failures.md").read_text()
    (tmp_path / "saver.yaml").write_text(guide.partition("```yaml\nname: saver")[2].partition("```")[0])
    text = (tmp_path / "saver.yaml").read_text()
    (tmp_path / "saver.yaml").write_text(f"name: saver{text}")
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    dave.berth("submit", str(tmp_path / "saver.yaml"))
    workload = client.workloads.find("saver")
    until(lambda: b"running" in client.workloads.log(workload.id).data)
    dave.berth("suspend", "saver")
    until(lambda: client.workloads.get(workload.id).phase == "suspended")
    (pod,) = client.workloads.pods(workload.id)
    assert (pod.state, pod.exit_code) == ("stopped", 0), "it ended by itself, long before SIGTERM"
    assert pod.signalled_at is not None
    dave.berth("resume", "saver")
    assert ended(client, workload).phase == "completed"
    assert client.workloads.log(workload.id).data.decode() == "resumed from step 41\n"
    assert "SIGUSR1 sent to 1 pod. SIGTERM follows after 120 s." in dave.berth("events", "saver")
    dave.berth("delete", "saver")
