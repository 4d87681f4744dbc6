"""Here pools say that they run Ray, where that can be."""
from importlib.machinery import ModuleSpec

import pytest

from berth.core.errors import Invalid
from pools.models import Node
from pools.models.node import NodeState
from pools.runtimes import choice
from pools.selectors import ray_nodes
from tests.pools.stage import START, pool


@pytest.mark.django_db
def test_a_pool_of_this_machine_may_run_ray() -> None:
    assert pool(provider="local", runtime="ray").runtime == "ray"


@pytest.mark.django_db
def test_without_ray_on_this_machine_it_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(choice, "find_spec", nothing)
    with pytest.raises(Invalid) as refused:
        pool(provider="local", runtime="ray")
    (problem,) = refused.value.problems
    assert problem.path == "runtime"
    assert "pip install 'berth[ray]'" in problem.message
    assert pool(provider="static", runtime="ray"), "machines that join install it themselves"


@pytest.mark.django_db
def test_machines_that_are_played_run_no_ray() -> None:
    with pytest.raises(Invalid):
        pool(provider="fake", runtime="ray")


@pytest.mark.django_db
def test_pods_do_not_start_beside_the_scheduler_when_their_nodes_are_elsewhere() -> None:
    for make in (
        lambda: pool(provider="static", runtime="local"), lambda: choice.check_runtime("aws", "local"),
    ):  # fmt: skip
        with pytest.raises(Invalid) as refused:
            make()
        (problem,) = refused.value.problems
        assert problem.path == "runtime"
        assert "elsewhere" in problem.message


@pytest.mark.django_db
def test_nodes_of_a_cluster_share_a_secret_and_lost_ones_are_not_asked() -> None:
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
