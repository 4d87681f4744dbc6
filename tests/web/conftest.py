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
from tests.shared_rows import cast, shared_cast

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
