"""Fixtures for tests of utilization on pages."""

import pytest
from django.test import Client

from projects.models import Pod
from tests import factories as make
from tests.cast import Cast


def page(client: Client, path: str) -> str:
    return client.get(path).content.decode()


@pytest.fixture
def pod(cast: Cast) -> Pod:
    node = make.node(cast.pool, devices=["GPU-0", "GPU-1"], gpu_memory_mib=80 * 1024)
    work = make.workload(cast.vision, "train", phase="running", run=1, started_at=make.ago(hours=2))
    return make.place(work, node, [1])
