"""Test that a real pod runs in the environment of its pool."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pools import services
from pools.environments.local import LocalEnvironments
from pools.environments.recipes import load_pending_recipes, load_recipe
from pools.models import Node
from pools.providers.hardware import Machine
from pools.providers.local import LocalProvider
from pools.providers.prepared import PreparedNodes
from pools.runtimes.local import LocalRuntime
from tests.contracts.pods import ended
from tests.journeys.installation import until
from tests.pools.environments.test_local_environments import wheel
from tests.pools.environments.test_prepared_nodes import one_pod, run_ticks
from tests.pools.stage import SYSTEM, Stage

__all__ = ["one_pod"]
PRINT_ENVIRONMENT = (
    "import lib, os, sys; print(lib.VERSION, os.environ['GREETING'], os.environ['HF_TOKEN'], sys.prefix)"
)


@pytest.mark.heavy
@pytest.mark.django_db
@pytest.mark.shows("PLG-01", "PLG-05", "PLG-08", "PLG-41")
def test_pod_runs_in_the_declared_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_pod: Callable[[Node], Any]
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "cloudpickle", version("cloudpickle"))
    wheel(wheels, "lib", "2.0")
    for name in ("transformers", "datasets", "tokenizers"):
        wheel(wheels, name, "1.0")
    wheel(wheels, "huggingface_hub", "1.0", code="def login(token):\n    assert token == 'hf_secret'\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    pool = services.create_pool(
        actor=SYSTEM, name="train", nodes=1, cpu_milli=4000, memory_mib=8192,
        plugins=[{"name": "huggingface", "parameters": {"token": "hf_secret"}}],
        environment={"pip": ["lib", "huggingface_hub"], "env": {"GREETING": "hello"}},
    )  # fmt: skip
    environments = LocalEnvironments(tmp_path / "environments")
    stage = Stage(pool)
    local = LocalProvider(tmp_path / "nodes", Machine(8000, 16384, ()))
    stage.provider = PreparedNodes(local, environments, load_recipe, load_pending_recipes)  # type: ignore[assignment]

    def find_booted_node() -> Node | None:
        stage.reconcile()
        stage.pass_time(0.1)  # less time than really passes, because a busy machine installs slowly
        return Node.objects.filter(pool=pool).exclude(state__in=("requested", "booting")).last()

    node = until(find_booted_node, seconds=500)
    assert (node.state, [phase["phase"] for phase in node.phases if phase["state"] == "done"]) == (
        "ready", ["apt", "python", "pip", "code", "huggingface login"],
    ), node.phases  # fmt: skip
    run_ticks(stage)
    runtime = LocalRuntime(tmp_path / "run", anchor="")
    order = one_pod(node)
    order = replace(order, command=("python", "-c", PRINT_ENVIRONMENT))
    runtime.start(order)
    ended(runtime, order.pod_id)
    output = runtime.tail_log(order.pod_id, 5).data.decode().split()
    assert output == ["2.0", "mine", "hf_secret", str(tmp_path / "environments" / str(node.environment_id))]
    assert sys.prefix not in output
