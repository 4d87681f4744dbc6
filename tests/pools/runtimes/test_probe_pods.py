"""Tests for probe pods, with real processes on this machine."""

import os
import subprocess
from pathlib import Path

import pytest

from pools.runtimes.local import LocalRuntime
from pools.runtimes.ray import probes
from pools.runtimes.ray.probes import ProbePods
from tests.contracts.pods import order, poll_until

NODE = {"box-1/7": ()}


class Node:
    """A node on this machine whose shell can be made to fail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runtime = LocalRuntime(root, anchor="")

    def probes(self) -> ProbePods:
        """Return the probes as a new scheduler process sees them."""
        return ProbePods(
            self.runtime, self.runtime.list_pods, lambda: NODE,
            lambda _, name: self.runtime.drop_workspace(name),
        )  # fmt: skip

    @property
    def workspaces(self) -> list[str]:
        return [path.name for path in (self.root / "workspaces").iterdir()]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "run")


def test_node_is_ready_after_its_probe_pod_has_run_and_been_cleaned_up(node: Node) -> None:
    first = node.probes()
    poll_until(lambda: first.unready_reasons(NODE), lambda reasons: reasons == {})
    assert node.runtime.list_pods() == ()
    assert node.workspaces == []
    assert list((node.root / "logs").iterdir()) == []
    assert first.unready_reasons(NODE) == {}, "a node that passed is not probed again"
    assert list((node.root / "pods").iterdir()) == []


def test_failed_probe_reports_the_reason_and_is_retried(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.root / "workspaces/probe").write_text("in the way")
    first = node.probes()
    [reason] = first.unready_reasons(NODE).values()
    assert reason.startswith("the probe pod could not be run: ")
    assert "File exists" in reason
    (node.root / "workspaces/probe").unlink()
    monkeypatch.setattr(probes, "COMMAND", "echo the disk is full; exit 4")
    poll_until(
        lambda: first.unready_reasons(NODE),
        lambda reasons: reasons == {"box-1/7": "the probe pod failed: exit code 4: the disk is full"},
    )
    monkeypatch.undo()
    assert first.unready_reasons(NODE) != {}, "the next probe is delayed"
    monkeypatch.setattr(probes, "RETRY_SECONDS", 0.0)
    poll_until(lambda: first.unready_reasons(NODE), lambda reasons: reasons == {})


@pytest.mark.parametrize(("devices", "exit_code"), [("GPU-a", 9), ("", 0)])
def test_gpu_probe_fails_if_the_driver_does_not_respond(tmp_path: Path, devices: str, exit_code: int) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho the driver is not loaded\nexit 9\n")
    tool.chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "BERTH_WORKSPACE": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": devices,
    }  # fmt: skip
    done = subprocess.run(["/bin/sh", "-c", probes.COMMAND], env=env, capture_output=True, check=False)
    assert done.returncode == exit_code


def test_hanging_probe_is_stopped(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "COMMAND", "sleep 600")
    monkeypatch.setattr(probes, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(probes, "TIMEOUT_SECONDS", 0.2)
    first = node.probes()
    poll_until(lambda: first.unready_reasons(NODE), lambda reasons: "did not finish within" in str(reasons))
    poll_until(lambda: first.unready_reasons(NODE) and node.runtime.list_pods() == ())


def test_restarted_scheduler_resumes_probes_and_deletes_probes_of_ended_nodes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "WAIT_SECONDS", 0.0)
    node.probes().unready_reasons({**NODE, "box-2/8": ()})
    started = set(node.runtime.list_pods())
    assert len(started) == 2
    after = node.probes()
    poll_until(lambda: after.unready_reasons(NODE), lambda reasons: reasons == {})
    poll_until(lambda: after.unready_reasons(NODE) or node.runtime.list_pods(), lambda left: not left)


def test_probe_runs_on_a_node_that_serves_only_another_project(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.runtimes.enclosure.probe.shutil.which", lambda name: None)
    monkeypatch.setenv("BERTH_ISOLATION", "auto")
    node.runtime.start(order("p-1", "true", project="vision"))
    first = node.probes()
    poll_until(lambda: first.unready_reasons(NODE), lambda reasons: reasons == {})
    assert (node.root / "workspaces/.project").read_text() == "vision"
