"""Fixtures for REST tests of pools."""

from datetime import timedelta

import pytest
from django.utils import timezone

from pools import services
from pools.models import NodePool
from tests.cast import Cast


@pytest.fixture
def metal_pool(cast: Cast) -> NodePool:
    return services.create_pool(
        actor=cast.alice, name="metal", nodes=(0, 3), provider="static", runtime="fake", gpus_per_node=2,
        cpu_milli=8000, memory_mib=16384,
    )  # fmt: skip


@pytest.fixture
def token(cast: Cast, metal_pool: NodePool) -> str:
    """Return a join token for a pool that needs one node, which is small enough for this machine."""
    _, token = services.issue_join_token(
        actor=cast.alice, pool=metal_pool, lifetime=timedelta(hours=1), at=timezone.now()
    )
    NodePool.objects.filter(pk=metal_pool.pk).update(
        gpus_per_node=0, cpu_milli=1, memory_mib=1, nodes_desired=1
    )
    return token
