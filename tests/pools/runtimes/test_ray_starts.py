"""Tests for starting several Ray pods at a time, without a Ray cluster."""

import threading
from pathlib import Path
from typing import Any

import pytest

from pools.runtimes.base import PodReport, PodSpec, PodState, RuntimeFailure
from pools.runtimes.ray.agents import AgentUnreachable, NodeAgent
from pools.runtimes.ray.cluster import RayNode
from pools.runtimes.ray.jobs import Jobs
from pools.runtimes.ray.runtime import RayRuntime
from tests.contracts.pods import order

NODE = RayNode("i-0", "ray", 0, "127.0.0.1", (), "secret")


@pytest.fixture
def runtime(tmp_path: Path) -> RayRuntime:
    return RayRuntime(tmp_path, lambda: [NODE])


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    submitted: list[str] = []
    monkeypatch.setattr(Jobs, "submit", lambda self, name, entrypoint, **rest: submitted.append(name))
    return submitted


def send_orders_to(monkeypatch: pytest.MonkeyPatch, receive: Any) -> None:
    def send(agent: NodeAgent, order: PodSpec) -> str:
        receive(order.pod_id)
        return "run-pod"

    monkeypatch.setattr(NodeAgent, "send_spec", send)


def pod(pod_id: str) -> PodSpec:
    return order(pod_id, "true", instance_id="i-0")


def test_pods_requested_together_start_concurrently(
    runtime: RayRuntime, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    all_sent = threading.Barrier(3)
    send_orders_to(monkeypatch, lambda pod_id: all_sent.wait(120))
    orders = [pod(f"p-{number}") for number in range(3)]
    for each in [*orders, *orders]:
        runtime.begin_start(each)
    for each in orders:
        runtime.start(each)
    assert sorted(jobs) == ["berth-p-0", "berth-p-1", "berth-p-2"]


def test_pod_start_raises_the_error_of_its_background_start_and_can_be_repeated(
    runtime: RayRuntime, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [AgentUnreachable("the node is not responding")]

    def receive(pod_id: str) -> None:
        if errors:
            raise errors.pop()

    send_orders_to(monkeypatch, receive)
    runtime.begin_start(pod("p-1"))
    with pytest.raises(RuntimeFailure, match="not responding"):
        runtime.start(pod("p-1"))
    runtime.begin_start(pod("p-1"))
    runtime.start(pod("p-1"))
    assert jobs == ["berth-p-1"]


def test_stop_waits_for_a_start_in_progress(
    runtime: RayRuntime, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    go_on = threading.Event()

    def receive(pod_id: str) -> None:
        go_on.wait(120)
        calls.append("start")

    send_orders_to(monkeypatch, receive)
    monkeypatch.setattr(NodeAgent, "stop", lambda self, *rest: calls.append("stop"))
    runtime.begin_start(pod("p-1"))
    threading.Timer(0.1, go_on.set).start()
    runtime.stop("p-1", 0)
    assert calls == ["start", "stop"]


def test_start_result_of_a_forgotten_pod_is_discarded(
    runtime: RayRuntime, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    send_orders_to(monkeypatch, lambda pod_id: None)
    runtime.begin_start(pod("p-1"))
    exited = PodReport(PodState.EXITED)
    monkeypatch.setattr(runtime, "get_reports", lambda pod_ids: dict.fromkeys(pod_ids, exited))
    runtime._nodes.clear()
    runtime.forget("p-1")
    assert not runtime._starts.has_call("p-1")
