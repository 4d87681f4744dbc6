"""Tests for submissions whose responses are lost."""

from typing import Any

import pytest

from berth.client import Client, Settings, Unreachable
from projects.models import Event, Workload
from projects.services.people import tokens
from tests.cast import Cast, make_cast, training
from tests.cli.workloads.lossy_proxy import run_lossy_proxy

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def token(cast: Cast) -> str:
    return tokens.issue(actor=cast.dave, name="test", scopes=["read", "write"], expires_at=None)[1]


@pytest.mark.parametrize("losses", [0, 1, 3])
def test_submission_with_lost_responses_creates_one_workload(
    live_server: Any, token: str, losses: int
) -> None:
    with (
        run_lossy_proxy(live_server.url, losses) as proxy,
        Client(Settings(proxy.address, token), sleep=_no_wait) as client,
    ):
        stored = client.workloads.submit({**training(), "project": "vision"})
    assert proxy.dropped == losses
    assert [str(row.pk) for row in Workload.objects.all()] == [stored.id]
    assert Event.objects.filter(kind="submitted").count() == 1


def test_abandoned_submission_creates_at_most_one_workload(live_server: Any, token: str) -> None:
    with (
        run_lossy_proxy(live_server.url, 100) as proxy,
        Client(Settings(proxy.address, token), sleep=_no_wait) as client,
        pytest.raises(Unreachable),
    ):
        client.workloads.submit({**training(), "project": "vision"})
    assert Workload.objects.count() == 1


def test_cancellation_with_lost_response_is_retried(live_server: Any, token: str) -> None:
    with Client(Settings(live_server.url, token)) as client:
        stored = client.workloads.submit({**training(), "project": "vision"})
    with (
        run_lossy_proxy(live_server.url, 1) as proxy,
        Client(Settings(proxy.address, token), sleep=_no_wait) as client,
    ):
        assert client.workloads.cancel(stored.id).phase == "cancelled"


def _no_wait(seconds: float) -> None:
    pass
