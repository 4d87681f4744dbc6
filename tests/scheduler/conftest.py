"""Fixtures for scheduler tests."""

import pytest

from pools.models import Node, NodePool
from pools.runtimes import capabilities
from pools.runtimes.capabilities import Capabilities
from projects.models import Quota
from tests.cast import make_cast
from tests.scheduler.stage import Stage


@pytest.fixture
def stage(transactional_db: None) -> Stage:
    """Create two nodes with two GPUs each, and a quota of four GPUs for project vision."""
    made = Stage(make_cast())
    made.node(0)
    made.node(1)
    made.quota(made.cast.research, 4)
    made.quota(made.cast.vision, 4)
    return made


@pytest.fixture
def cloud(stage: Stage) -> NodePool:
    """Create a second pool, so that each pool has one node with two GPUs, and delete all quotas."""
    pool = NodePool.objects.create(
        name="cloud", provider="fake", runtime="fake", nodes_min=0, nodes_max=1, gpus_per_node=2,
        cpu_milli=8000, memory_mib=16384,
    )  # fmt: skip
    Node.objects.get(name="local-1").delete()
    Quota.objects.all().delete()
    stage.node(pool=pool)
    return pool


@pytest.fixture
def runs_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        capabilities, "CAPABILITIES", {**capabilities.CAPABILITIES, "fake": Capabilities(runs_images=True)}
    )
