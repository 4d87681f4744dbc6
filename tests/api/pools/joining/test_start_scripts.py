"""Tests for the reports that machines send about their start scripts."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from pools import services
from pools.joining.instructions import Instructions
from pools.models import Machine, Node, NodePool, ScalingEvent
from pools.runtimes.shim.processes import start_time
from tests.api.conftest import Caller
from tests.api.pools.joining.test_joining import (
    Wired,
    join,
    reconcile_pool,
    report_in,
)
from tests.contracts.pods import poll_until
from tests.journeys.installation import command_line
from tests.support.agents import start_agent

FAILED_REPORT = {"exit_code": 127, "seconds": 3, "output": "looking for Python\npython3: not found"}
FAILURE_REASON = "start script failed with exit code 127: python3: not found"


def send_report(secret: str, **fields: Any) -> Any:
    return report_in(secret, {"started": {"instance": report_in(secret).json()["instance"], **fields}})


def test_node_with_a_failed_start_script_is_marked_lost_with_exit_code_and_output(
    alice: Caller, bob: Caller, metal_pool: NodePool
) -> None:
    secret = join(alice)
    reconcile_pool(metal_pool, nodes_desired=1)
    assert send_report(secret, **FAILED_REPORT).status_code == 200
    assert ScalingEvent.objects.get(kind="lost").reason == FAILURE_REASON
    reconcile_pool(metal_pool)
    assert not Node.objects.exclude(state="ended").exists(), "the machine is not used"
    node = alice.get("nodes/metal-0").json()
    phase = {"phase": "start", "state": "failed", "seconds": 3, "exit_code": 127}
    assert (node["state"], node["phases"]) == ("ended", [{**phase, "message": FAILED_REPORT["output"]}])
    assert bob.get("nodes/metal-0").json()["phases"] == [{**phase, "message": ""}]
    assert FAILURE_REASON in alice.get("node-pools/metal").json()["last_error"]
    assert "metal-0" not in {row["name"] for row in alice.get("nodes").json()["items"]}


@pytest.mark.heavy
def test_machine_with_a_failed_start_script_is_selected_last(alice: Caller, metal_pool: NodePool) -> None:
    secret = join(alice)
    reconcile_pool(metal_pool, nodes_desired=1)
    send_report(secret, **FAILED_REPORT)
    reconcile_pool(metal_pool)
    join(alice, name="box-2")
    NodePool.objects.update(retry_at=None, boot_retry_at=None)
    reconcile_pool(metal_pool)
    assert Node.objects.get(state="ready").instance_id.startswith("box-2/")
    Node.objects.filter(state="ended").update(since=timezone.now() - timedelta(minutes=3))
    reconcile_pool(metal_pool, nodes_desired=2)
    assert Node.objects.filter(state="ready").count() == 2
    assert report_in(secret).json()["node"] == "metal-1"


def test_start_script_progress_is_stored_with_the_node(alice: Caller, metal_pool: NodePool) -> None:
    secret = join(alice)
    reconcile_pool(metal_pool, nodes_desired=1)
    send_report(secret, seconds=2, output="installing ray")
    running = {"phase": "start", "state": "running", "seconds": 0, "message": "installing ray"}
    assert Node.objects.get().phases == [running]
    send_report(secret, seconds=40, exit_code=0, output="up")
    node = Node.objects.get()
    assert (node.state, node.phases[0]["state"], node.phases[0]["exit_code"]) == ("ready", "done", 0)


@pytest.mark.heavy
def test_report_for_a_previous_instance_is_ignored(alice: Caller, metal_pool: NodePool) -> None:
    # Both reports name the same machine and node. Only the instance differs.
    secret = join(alice)
    reconcile_pool(metal_pool, nodes_desired=1)
    former = report_in(secret).json()["instance"]
    reconcile_pool(metal_pool, nodes_desired=0)
    services.mark_node_emptied(Node.objects.get(pool=metal_pool))
    reconcile_pool(metal_pool)
    reconcile_pool(metal_pool, nodes_desired=1)
    report_in(secret, {"started": {"instance": former, **FAILED_REPORT}})
    assert [(node.state, node.phases) for node in Node.objects.exclude(state="ended")] == [("ready", [])]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [({"instance": ""}, "instance"), ({"exit_code": 1000}, "exit_code"), ({"output": "x" * 4001}, "output")],
)
def test_malformed_start_script_report_is_rejected(
    alice: Caller, metal_pool: NodePool, wrong: dict[str, Any], path: str
) -> None:
    answer = report_in(join(alice), {"started": {"instance": "box-1/1", **wrong}})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, f"started.{path}")


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_agent_reports_the_start_scripts_exit_code_and_output(
    live_server: LiveServer, token: str, metal_pool: NodePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired, stopped = Wired(), tmp_path / "stopped"
    script = Instructions("echo preparing; echo no such program >&2; exit 7", f"echo $BERTH_NODE > {stopped}")
    wired.instructions = lambda node: script
    monkeypatch.setattr("pools.api.joining.load_wiring", lambda: wired)
    running = start_agent(live_server.url, tmp_path / "state", token)
    try:
        poll_until(Machine.objects.exists)
        reconcile_pool(metal_pool)
        poll_until(lambda: ScalingEvent.objects.filter(kind="lost").exists())
        reason = ScalingEvent.objects.get(kind="lost").reason
        assert reason == "start script failed with exit code 7: no such program"
        [phase] = Node.objects.get().phases
        assert (phase["exit_code"], phase["message"]) == (7, "preparing\nno such program\n")
        reconcile_pool(metal_pool)
        poll_until(stopped.exists)
        assert (tmp_path / "state/start.sh").stat().st_mode & 0o777 == 0o600, "start scripts contain secrets"
    finally:
        running.kill()
        running.wait()


def test_restarted_agent_stops_a_node_with_a_failed_start_script(tmp_path: Path) -> None:
    # The script may have left processes, which nothing else would stop after `uninstall`.
    stopped = tmp_path / "stopped"
    answer = {
        "instance": "box-1/1", "node": "metal-0", "ordinal": 0, "start": "exit 7", "stop": f"touch {stopped}",
    }  # fmt: skip

    def run(*lines: str) -> None:
        program = "\n".join(["from pools.joining.agent.scripts import StartScript", *lines])
        env = {**os.environ, "BERTH_MACHINE_STATE": str(tmp_path / "state")}
        subprocess.run([sys.executable, "-c", program], env=env, check=True)

    run(
        "import os, subprocess",
        "class EndedScript(subprocess.Popen):",
        "    def __init__(self, *args, **options):",
        "        super().__init__(*args, **options)",
        "        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)",
        "subprocess.Popen = EndedScript  # the script fails before the agent has recorded its process",
        "script = StartScript()",
        f"script.follow_instructions({answer!r})",
        "assert not script.job.is_running",
    )
    assert not stopped.exists()
    run("assert StartScript().answer == {}")
    assert stopped.exists()


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_agent_restarts_a_node_after_all_its_processes_were_killed(
    live_server: LiveServer, token: str, metal_pool: NodePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired, pids = Wired(), tmp_path / "pids"
    script = Instructions(
        f"sleep 600 > /dev/null 2>&1 & echo $! >> {pids}", f"kill $(tail -n 1 {pids})",
        check=f"kill -0 $(tail -n 1 {pids})",
    )  # fmt: skip
    wired.instructions = lambda node: script
    monkeypatch.setattr("pools.api.joining.load_wiring", lambda: wired)

    def started() -> list[int]:
        return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []

    running = start_agent(live_server.url, tmp_path / "state", token)
    try:
        poll_until(Machine.objects.exists)
        reconcile_pool(metal_pool)
        poll_until(lambda: len(started()) == 1)
        os.kill(started()[0], signal.SIGKILL)
        poll_until(lambda: len(started()) == 2)
        assert Node.objects.get().state == "ready"
    finally:
        running.kill()
        running.wait()
        for pid in started():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_slurm_job_agent_exits_and_deletes_its_files_if_the_job_script_is_killed(
    live_server: LiveServer, token: str, metal_pool: NodePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired, pid = Wired(), tmp_path / "pid"
    script = Instructions(
        f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600; true", f"touch {tmp_path}/stopped"
    )
    wired.instructions = lambda node: script
    monkeypatch.setattr("pools.api.joining.load_wiring", lambda: wired)
    with subprocess.Popen(["sleep", "600"]) as job:
        state = tmp_path / "state"
        anchor = f"{job.pid}:{start_time(job.pid)}"
        agent = start_agent(
            live_server.url, state, token, BERTH_INSTANCE_ID="7-b123456789ab", BERTH_ANCHOR=anchor
        )
        try:
            poll_until(Machine.objects.exists)
            reconcile_pool(metal_pool)
            poll_until(pid.exists)
            shutil.rmtree(state)  # the next job on the machine does this while this agent still runs
            job.kill()
            assert agent.wait(180) == 0
        finally:
            job.kill()
            agent.kill()
            agent.wait()
    poll_until(lambda: not command_line(int(pid.read_text())))  # the start script has ended
    assert not state.exists()
