"""Tests for concurrent probe pods of many nodes and several pools, with fake agents."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pools.runtimes.base import PodReport, PodSpec, PodState
from pools.runtimes.ray import probes
from pools.runtimes.ray.cluster import RayNode
from pools.runtimes.ray.runtime import RayRuntime

HANG_SECONDS = 120


class FakeAgent:
    """An agent whose pods end immediately, and a Ray head that reports every node as alive."""

    def __init__(self) -> None:
        self.ends = True
        self.pods: dict[str, PodReport] = {}
        self.stopped: list[str] = []
        self.lock = threading.Lock()

    def send_spec(self, spec: PodSpec) -> str:
        with self.lock:
            self.pods[spec.pod_id] = PodReport(PodState.RUNNING)
        return ""

    def get_reports(self, pod_ids: Iterable[str]) -> dict[str, PodReport]:
        ended = PodReport(PodState.EXITED, exit_code=0)
        return {pod_id: ended if self.ends else self.pods[pod_id] for pod_id in pod_ids}

    def list_pods(self) -> tuple[str, ...]:
        return ()

    def stop(self, pod_id: str, grace_seconds: int) -> None:
        self.stopped.append(pod_id)

    def log_chunks(self, pod_id: str) -> Iterator[tuple[int, bytes]]:
        return iter(())

    def read_log_times(self, pod_id: str, start: int, end: int) -> list[tuple[int, int]]:
        return []

    def node_state(self, label: str) -> str:
        return "ALIVE"

    def ignore(self, *arguments: Any) -> None:
        """Accept calls that have no effect in this fake."""

    clear = drop_workspace = delete = ignore


class Stage:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agent = FakeAgent()
        self.nodes: list[RayNode] = []
        for name in ("_agent", "_jobs"):
            monkeypatch.setattr(RayRuntime, name, lambda *_: self.agent)
        self.runtime = RayRuntime(root, lambda: list(self.nodes))

    def boot(self, pool: str, number: int) -> list[str]:
        nodes = [RayNode(f"{pool}-{i}", pool, i, f"10.0.0.{i}", (), "secret") for i in range(number)]
        self.nodes += nodes
        return [node.instance_id for node in nodes]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_nodes_boot_concurrently_even_if_they_outnumber_the_runtime_threads(stage: Stage) -> None:
    instances, results = stage.boot("a", 20), list[dict[str, str]]()
    thread = threading.Thread(
        target=lambda: results.append(stage.runtime.unready_reasons(instances)), daemon=True
    )
    thread.start()
    thread.join(HANG_SECONDS)
    assert results == [{}]


def test_probes_of_one_pool_continue_while_another_pool_is_probed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "WAIT_SECONDS", 0.0)
    stage.agent.ends = False
    first, second = stage.boot("a", 2), stage.boot("b", 2)
    for instances in (first, second, first, second):
        assert set(stage.runtime.unready_reasons(instances).values()) == {"the probe pod is running"}
    assert len(stage.agent.pods) == 4, "each node is probed once"
    assert stage.agent.stopped == []
    stage.agent.ends = True
    for _ in range(2):
        assert stage.runtime.unready_reasons(first) == stage.runtime.unready_reasons(second) == {}
    assert len(stage.agent.pods) == 4, "a node that passed is not probed again"


def test_probes_of_nodes_that_have_ended_are_deleted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "WAIT_SECONDS", 0.0)
    stage.agent.ends = False
    stage.runtime.unready_reasons(stage.boot("a", 2))
    instances = stage.boot("b", 1)
    del stage.nodes[0]
    stage.runtime.unready_reasons(instances)
    assert len(stage.agent.pods) == 3
    assert len(stage.runtime.ledger.pod_ids()) == 2
