"""Tests for the pools in which the Ray runtime is allowed."""

from datetime import timedelta
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from berth.core.errors import Invalid
from berth.server.wiring import Wiring
from pools import services
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import NodeState
from pools.providers.static import StaticProvider
from pools.reconciler import reconcile
from pools.runtimes import capabilities
from pools.runtimes.base import PodCause, PodState, RuntimeFailure
from pools.runtimes.ray.cluster import RayNode
from pools.runtimes.ray.runtime import RayRuntime
from pools.selectors import ray_nodes
from pools.services.joining import MachineReport
from tests.contracts.pods import order
from tests.fakes.clock import FixedClock
from tests.pools.stage import START, SYSTEM, pool


@pytest.mark.django_db
def test_local_pool_can_run_ray() -> None:
    assert pool(provider="local", runtime="ray").runtime == "ray"


@pytest.mark.django_db
def test_ray_runtime_is_rejected_if_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_no_module(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(capabilities, "find_spec", find_no_module)
    with pytest.raises(Invalid) as raised:
        pool(provider="local", runtime="ray")
    (problem,) = raised.value.problems
    assert problem.path == "runtime"
    assert "pip install 'berth-platform[ray]'" in problem.message
    assert pool(provider="static", runtime="ray"), "machines that join install Ray themselves"


@pytest.mark.django_db
def test_ray_runtime_is_rejected_with_the_fake_provider() -> None:
    with pytest.raises(Invalid):
        pool(provider="fake", runtime="ray")


@pytest.mark.heavy
@pytest.mark.django_db
def test_local_runtime_is_rejected_if_nodes_are_remote_machines() -> None:
    for make in (
        lambda: pool(provider="static", runtime="local"), lambda: capabilities.check_runtime("aws", "local"),
    ):  # fmt: skip
        with pytest.raises(Invalid) as raised:
            make()
        (problem,) = raised.value.problems
        assert problem.path == "runtime"
        assert "are other machines" in problem.message


UNREACHABLE_NODE = RayNode(
    "i-0", "metal", 0, "127.98.1.1", (), "5ec2e7" * 10
)  # no process listens at this address


def test_pod_that_never_reached_its_node_stops_immediately(tmp_path: Path) -> None:
    runtime = RayRuntime(tmp_path, lambda: [UNREACHABLE_NODE])
    with pytest.raises(RuntimeFailure, match="is not responding"):
        runtime.start(order("p-1"))
    assert runtime.get_reports(["p-1"])["p-1"].state is PodState.STARTING
    runtime.stop("p-1", 60)
    report = runtime.get_reports(["p-1"])["p-1"]
    assert (report.state, report.cause) == (PodState.EXITED, PodCause.STOPPED)
    runtime.start(order("p-1"))
    assert RayRuntime(tmp_path, lambda: [UNREACHABLE_NODE]).get_reports(["p-1"])["p-1"] == report, (
        "the pod never starts"
    )


@pytest.mark.django_db
def test_static_node_without_ray_is_never_ready_and_reports_the_reason(tmp_path: Path) -> None:
    metal = pool((0, 1), provider="static", runtime="ray", gpus_per_node=0, boot_timeout=60)
    _, token = services.issue_join_token(actor=SYSTEM, pool=metal, lifetime=timedelta(hours=1), at=START)
    machine_report = MachineReport("box-1", UNREACHABLE_NODE.address, 8000, 65536)
    services.join(pool_name=metal.name, token=token, measured=machine_report, at=START)
    clock = FixedClock(START)
    runtime = RayRuntime(tmp_path, ray_nodes)
    wiring = Wiring(clock, {"static": lambda pool: StaticProvider(clock.now)}, {"ray": runtime})
    NodePool.objects.update(nodes_desired=1)
    for _ in range(4):
        reconcile(metal.pk, provider=wiring.provider_for(metal), now=clock.now())
        clock.advance(15)
        assert Node.objects.get().state in (NodeState.REQUESTED, NodeState.BOOTING), (
            "the node accepts no work"
        )
    reconcile(metal.pk, provider=wiring.provider_for(metal), now=clock.now())
    [event] = ScalingEvent.objects.filter(kind="lost")
    assert event.reason.startswith(
        f"not ready within 60 s: the node at http://{UNREACHABLE_NODE.address}:8365 is not responding"
    )


@pytest.mark.heavy
@pytest.mark.django_db
def test_nodes_of_a_ray_cluster_share_a_secret() -> None:
    metal = pool(provider="static", runtime="ray")
    for ordinal, state in enumerate(("ready", "draining", "lost", "requested")):
        Node.objects.create(
            pool=metal, name=f"metal-{ordinal}", ordinal=ordinal, state=NodeState(state), cpu_milli=1000,
            instance_id=f"m/{ordinal}", memory_mib=1024, since=START, devices=["GPU-a"],
            address="" if state == "requested" else f"10.0.0.{ordinal}",
            drain_started_at=START if state == "draining" else None,
        )  # fmt: skip
    head, worker = ray_nodes()
    assert (head.is_head, head.address, head.devices) == (True, "10.0.0.0", ("GPU-a",))
    assert (worker.is_head, worker.address) == (False, "10.0.0.1")
    assert head.secret == worker.secret
    assert len(head.secret) == 64
