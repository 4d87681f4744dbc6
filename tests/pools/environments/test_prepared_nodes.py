"""Tests for nodes with an environment: readiness and failures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pools import services
from pools.environments.local import InstallStatus, LocalEnvironments, Recipe
from pools.environments.progress import Phase, Progress
from pools.environments.recipes import digests_in_use, load_pending_recipes, load_recipe
from pools.models import Environment, Node, NodePool, ScalingEvent
from pools.providers.hardware import Device, Machine
from pools.providers.local import LocalProvider
from pools.providers.prepared import PreparedNodes
from pools.services.environments import delete_unused_environments
from scheduler.loop.dispatch.starts.images import NO_IMAGE
from scheduler.loop.dispatch.starts.pod_specs import build_pod_spec
from scheduler.loop.dispatch.starts.secrets import SecretReader
from tests.pools.stage import START, SYSTEM, Stage

pytestmark = pytest.mark.django_db
PIP_RUNS = Progress((Phase("python", "done", 2), Phase("pip", "running")))
PIP_FAILS = Progress((Phase("python", "done", 2), Phase("pip", "failed", 3, "looking\nno such package")))


@dataclass
class Scripts(LocalEnvironments):
    """Fake environments that run no scripts. The test sets their progress."""

    root: Path
    now: InstallStatus | None = None
    begun: dict[str, Recipe] = field(default_factory=dict)

    def begin_installation(self, name: str, recipe: Recipe) -> None:
        self.begun[name] = recipe
        self.now = self.now or InstallStatus(Progress())

    def get_status(self, name: str, secrets: Any) -> InstallStatus | None:
        return self.now if name in self.begun else None

    def end(self, name: str) -> None:
        self.begun.pop(name, None)


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    (tmp_path / "environments").mkdir()
    return Scripts(tmp_path / "environments")


@pytest.fixture
def stage(tmp_path: Path, scripts: Scripts) -> Iterator[Stage]:
    pool = services.create_pool(
        actor=SYSTEM, name="train", nodes=1, gpus_per_node=1, cpu_milli=4000, memory_mib=8192,
        plugins=[{"name": "huggingface", "parameters": {"token": "hf_secret"}}],
        environment={"env": {"GREETING": "hello"}},
    )  # fmt: skip
    machine = Machine(8000, 16384, tuple(Device(f"GPU-{n}", "H100", 80000) for n in range(2)))
    local = LocalProvider(tmp_path / "nodes", machine)
    stage = Stage(pool)
    stage.provider = PreparedNodes(local, scripts, load_recipe, load_pending_recipes)  # type: ignore[assignment]
    yield stage


def node(stage: Stage) -> Node:
    return Node.objects.filter(pool=stage.pool).order_by("-pk")[0]


def run_ticks(stage: Stage, count: int = 1) -> None:
    for _ in range(count):
        stage.reconcile()
        stage.pass_time(15)


def test_node_shows_progress_and_is_ready_once_its_environment_is_built(
    stage: Stage, scripts: Scripts
) -> None:
    run_ticks(stage)
    assert node(stage).state in ("requested", "booting")
    (begun_recipe,) = scripts.begun.values()
    built = NodePool.objects.get(pk=stage.pool.pk).built_environment
    assert built is not None
    assert (begun_recipe.script, begun_recipe.secrets) == (built.script, {"HF_TOKEN": "hf_secret"})
    scripts.now = InstallStatus(PIP_RUNS)
    run_ticks(stage)
    assert [(phase["phase"], phase["state"]) for phase in node(stage).phases] == [
        ("python", "done"), ("pip", "running"),
    ]  # fmt: skip
    assert (node(stage).state, node(stage).environment_id) == ("booting", built.pk)
    scripts.now = InstallStatus(Progress(), ready=True)
    run_ticks(stage)
    assert node(stage).state == "ready"
    assert node(stage).prepared_at is not None


@pytest.mark.heavy
def test_node_with_a_failed_environment_is_marked_lost_and_replaced_later(
    stage: Stage, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_ticks(stage)
    scripts.now = InstallStatus(PIP_FAILS, failure=PIP_FAILS.failure_message)
    run_ticks(stage)
    lost_node = Node.objects.get(pool=stage.pool, ordinal=0)
    assert lost_node.phases[1]["message"] == "looking\nno such package"
    failure = "environment could not be installed: pip: no such package"
    assert ScalingEvent.objects.get(pool=stage.pool, kind="lost").reason == failure
    run_ticks(stage)
    failed = f"Failed boot 1 of 5 (train-0): {failure}. Next attempt in 30 s."
    assert NodePool.objects.get(pk=stage.pool.pk).last_error == failed
    assert Node.objects.filter(pool=stage.pool).count() == 1, "no node is ordered before the next attempt"
    services.edit_pool(actor=SYSTEM, pool=stage.pool, changes={"environment": {"pip": ["numpy"]}})
    scripts.now = InstallStatus(Progress(), ready=True)
    run_ticks(stage, 3)
    assert node(stage).state == "ready"
    assert NodePool.objects.get(pk=stage.pool.pk).last_error == ""


@pytest.mark.heavy
def test_existing_nodes_keep_their_environment(stage: Stage, scripts: Scripts) -> None:
    scripts.now = InstallStatus(Progress(), ready=True)
    run_ticks(stage, 2)
    before = node(stage).environment_id
    services.edit_pool(actor=SYSTEM, pool=stage.pool, changes={"environment": {"pip": ["numpy"]}})
    run_ticks(stage)
    after = NodePool.objects.get(pk=stage.pool.pk).built_environment_id
    assert node(stage).environment_id == before != after
    assert digests_in_use() == {before, after}
    services.edit_pool(actor=SYSTEM, pool=stage.pool, changes={"environment": {"pip": ["scipy"]}})
    assert delete_unused_environments(before=START + timedelta(days=10_000)) == 1
    assert not Environment.objects.filter(pk=after).exists()


@pytest.mark.heavy
def test_slow_installation_counts_towards_the_boot_timeout(stage: Stage, scripts: Scripts) -> None:
    run_ticks(stage)
    scripts.now = InstallStatus(PIP_RUNS)
    stage.pass_time(901)
    run_ticks(stage)
    assert "not ready within 900 s" in ScalingEvent.objects.get(pool=stage.pool, kind="lost").reason


@pytest.mark.heavy
def test_interrupted_installation_is_restarted(stage: Stage, scripts: Scripts) -> None:
    run_ticks(stage)
    scripts.begun.clear()  # forget the script, as if the machine had crashed
    run_ticks(stage)
    assert list(scripts.begun) == [node(stage).instance_id]


@pytest.mark.shows("PLG-05", "PLG-41")
def test_pods_get_the_pools_variables_and_secrets(
    stage: Stage, scripts: Scripts, one_pod: Callable[[Node], Any]
) -> None:
    scripts.now = InstallStatus(Progress(), ready=True)
    run_ticks(stage, 2)
    order = one_pod(node(stage))
    assert order.environment == node(stage).environment_id
    assert (order.env["GREETING"], order.secret_env["HF_TOKEN"]) == ("mine", "hf_secret")
    assert "HF_TOKEN" not in order.env, "the record of the order contains no secret"


@pytest.fixture
def one_pod() -> Callable[[Node], Any]:
    from berth.core.spec import parse_workload
    from projects.models import Pod
    from tests import factories as make
    from tests.cast import make_cast

    def ordered(on: Node) -> Any:
        work = make.workload(make_cast().vision, "train", phase="starting")
        make.place(work, on, [0] if on.gpus else [], state="starting")
        pod = Pod.objects.select_related("node__environment", "node__pool", "allocation").get(workload=work)
        pod.workload.rendezvous = {"address": "127.0.0.1", "port": 29500}
        document = {"name": "train", "project": "vision", "command": "true", "env": {"GREETING": "mine"},
                    "roles": [{"name": "worker", "replicas": 1, "gpu": 1}]}  # fmt: skip
        return build_pod_spec(pod, parse_workload(document), [pod], NO_IMAGE, SecretReader())

    return ordered
