"""Tests for PyTorch, JAX and scikit-learn on pools with their plugins.

Installing the packages takes minutes, as on the nodes of a pool, so `make test-heavy` runs these tests.
"""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from berth.client import Client
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import ROOT, Installation
from tests.journeys.sessions import test_sessions_with_packages as here

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1500)]
cloudpickle.register_pickle_by_value(here)

# CPU builds are much smaller. Set the variable if pip's default index has no such build.
TORCH = os.environ.get("BERTH_TEST_TORCH", "2.13.0+cpu")
PATIENCE = 900.0


@pytest.fixture(scope="module")
def dave(berth: Installation) -> Iterator[Client]:
    terminal = sign_in(berth, "dave", berth.home.parent / "dave")
    with terminal.client() as client:
        yield client


@pytest.fixture(scope="module")
def admin(berth: Installation) -> Iterator[Client]:
    config = berth.home.parent / "admin"
    config.mkdir()
    terminal = Terminal(f"http://127.0.0.1:{berth.port}", config)
    password = (berth.home / "admin-password").read_text()
    terminal.berth("login", terminal.address, "-u", "admin", "--password-stdin", stdin=password)
    with terminal.client() as client:
        yield client


def create_pool_with(admin: Client, name: str, *plugins: Any) -> str:
    """Create a pool of two nodes with one declared GPU each, and give vision a quota of both."""
    shape = {"gpus_per_node": 1, "cpu": 1, "memory_mib": 1024, "nodes_min": 0, "nodes_max": 2}
    admin.node_pools.create(name, provider="local", runtime="local", plugins=list(plugins), **shape)
    admin.quotas.create("department", "research", name, {"gpu": 2, "cpu": 2, "memory_mib": 2048})
    admin.quotas.create("project", "vision", name, {"gpu": 2, "cpu": 2, "memory_mib": 2048})
    return name


def reduce_over_all() -> tuple[int, int, float]:
    import torch
    from torch import distributed

    mine = torch.tensor([distributed.get_rank() + 1.0])
    distributed.all_reduce(mine)
    return int(os.environ["RANK"]), distributed.get_rank(), mine.item()


def train_ddp_step() -> tuple[float, float]:
    """Train one step on data that differs by rank, after which all ranks have equal weights."""
    import torch
    from torch import distributed, nn

    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = (model(torch.ones(1, 1)) * (distributed.get_rank() + 1)).sum()
    loss.backward()
    optimizer.step()
    return model.module.weight.item(), model.module.weight.grad.item()


@pytest.mark.shows("PLG-01", "PLG-35", "PLG-37")
def test_torch_all_reduce_spans_two_nodes_with_one_rank_each(admin: Client, dave: Client) -> None:
    torch = {"name": "torch", "parameters": {"version": TORCH, "index": "default"}}
    pool = create_pool_with(admin, "torch", torch)
    with dave.session(pool, nodes=2, gpus=1, project="vision", start_timeout=PATIENCE) as session:
        sums = session.broadcast(reduce_over_all).result(300)
        assert sums == [(0, 0, 3.0), (1, 1, 3.0)]
        [first, second] = session.broadcast(train_ddp_step).result(300)
        assert first == second
        assert first[1] == pytest.approx(1.5)  # the mean of 1 and 2, the gradients of both ranks


def count_jax_devices() -> tuple[int, int, float]:
    import jax
    from jax.experimental import multihost_utils

    total = multihost_utils.process_allgather(jax.numpy.asarray([jax.process_index() + 1.0])).sum()
    return jax.process_index(), jax.process_count(), float(total)


@pytest.mark.shows("PLG-39")
def test_jax_runtime_spans_two_processes(admin: Client, dave: Client) -> None:
    pool = create_pool_with(admin, "jax", "jax")
    with dave.session(pool, nodes=2, gpus=1, project="vision", start_timeout=PATIENCE) as session:
        assert session.broadcast(count_jax_devices).result(300) == [(0, 2, 3.0), (1, 2, 3.0)]


SEARCH = """
import os, sys
import numpy as np
from berth.client import Client
from sklearn.datasets import make_regression
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

folder = sys.argv[1]

class Noted(Ridge):
    def fit(self, X, y):
        open(os.path.join(folder, os.environ.get("RANK", "client")), "a").close()
        return super().fit(X, y)

grid = {"alpha": [0.1, 1, 1000]}
X, y = make_regression(200, 5, noise=50, random_state=0)
with Client() as client, client.session("sklearn", nodes=2, gpus=1, project="vision") as session:
    search = GridSearchCV(Noted(), grid, cv=4, n_jobs=-1, refit=False).fit(X, y)
alone = GridSearchCV(Ridge(), grid, cv=4, n_jobs=1, refit=False).fit(X, y)
print(len(search.cv_results_["params"]) * search.n_splits_, "fits")
print(np.allclose(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"]))
print(search.best_params_ == alone.best_params_)
"""


@pytest.mark.shows("PLG-42", "PLG-43")
def test_scikit_learn_grid_search_runs_on_a_pool_with_the_plugin(
    admin: Client, dave: Client, berth: Installation, tmp_path: Path
) -> None:
    # The client also needs scikit-learn, so it runs with the Python of the pool's nodes.
    pool = create_pool_with(admin, "sklearn", "sklearn")
    with dave.session(pool, gpus=1, project="vision", start_timeout=PATIENCE) as session:
        python = session.submit(lambda: sys.executable).result(60)
    assert str(berth.home) in python
    env = {
        "PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(berth.home.parent / "dave"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform"), sysconfig.get_path("purelib")]),
    }  # fmt: skip
    command = [python, "-c", SEARCH, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.splitlines() == ["12 fits", "True", "True"], done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0", "1"]
