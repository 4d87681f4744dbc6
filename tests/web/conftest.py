"""Fixtures for page tests: the cast, and a signed-in client for each user."""

from collections.abc import Callable
from typing import TypeAlias

import pytest
from django.http import StreamingHttpResponse
from django.test import Client

from projects.models import Phase, Workload, WorkloadArray
from projects.services import arrays
from tests import factories as make
from tests.cast import Cast
from tests.harness.shared_rows import cast, shared_cast

__all__ = ["cast", "shared_cast"]

SignIn: TypeAlias = Callable[[str], Client]


def streamed(response: object) -> bytes:
    assert isinstance(response, StreamingHttpResponse)
    return b"".join(response)


def submit_array(cast: Cast, name: str, tasks: int) -> WorkloadArray:
    document = {
        "name": name, "project": "vision", "command": "x", "pools": [cast.pool.name],
        "array": {"tasks": tasks}, "roles": [{"name": "worker", "gpu": 1}],
    }  # fmt: skip
    return arrays.submit(actor=cast.dave, document=document).array


@pytest.fixture(autouse=True)
def reset_rate_limits(frozen_rate_limits: None) -> None:
    pass


@pytest.fixture
def sign_in(cast: Cast) -> SignIn:
    def signed_in(name: str) -> Client:
        client = Client()
        client.force_login(cast.people[name].user)
        return client

    return signed_in


@pytest.fixture
def admin_client(cast: Cast) -> Client:
    user = cast.alice.user
    user.is_staff = True
    user.save()
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def running(cast: Cast) -> Workload:
    workload = make.workload(
        cast.vision,
        "baseline",
        replicas=2,
        phase=Phase.RUNNING,
        pool=cast.pool,
        pools=[cast.pool.name],
        submitted_at=make.ago(minutes=30),
        first_started_at=make.ago(minutes=20),
    )
    node = make.node(cast.pool, gpus=4)
    for device in range(2):
        make.place(workload, node, [device])
    return workload


@pytest.fixture
def running_workload(cast: Cast) -> Workload:
    node = make.node(cast.pool)
    running = make.workload(cast.vision, "train", phase="running", started_at=make.ago(minutes=9), run=1)
    make.place(running, node, [0])
    waiting = make.workload(
        cast.ads, "rank", explanation={"blockers": [{"reason": "Backoff", "message": "hm"}]}
    )
    make.quota(cast.vision, cast.pool, 2)
    make.queue_status(cast.vision, cast.pool, share=2, allocated=1, requested=2)
    make.event(running, "running", "All pods run.")
    make.scaling(cast.pool, "ready", "answers", at=make.ago(minutes=1), node=node)
    make.cycle(plan={"bundles": []})
    numbers = {"victim": [{"queue": "vision", "quota": {"gpu": 2000}, "share": {"gpu": 2500}, "usage": 0.5}]}
    make.eviction(running, waiting, cast.pool, numbers=numbers)
    return running


@pytest.fixture
def rack7(cast: Cast) -> None:
    """Create a node and two workloads whose names begin with "rack7"."""
    make.node(cast.pool, name="rack7-node")
    make.workload(cast.vision, "rack7-train", phase="running")
    make.workload(cast.ads, "rack7-ranker")
