"""A lost answer never creates a second workload."""

from typing import Any

import pytest

from berth.client import Client, Settings, Unreachable
from projects.models import Event, Workload
from projects.services.people import tokens
from tests.cast import Cast, make_cast, training
from tests.cli.lossy import lossy

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def token(cast: Cast) -> str:
    return tokens.issue(acting=cast.dave, name="test", scopes=["read", "write"], expires_at=None)[1]


@pytest.mark.parametrize("losses", [0, 1, 3])
def test_a_submission_whose_answers_are_lost_is_submitted_once(
    live_server: Any, token: str, losses: int
) -> None:
    with (
        lossy(live_server.url, losses) as line,
        Client(Settings(line.address, token), sleep=_at_once) as client,
    ):
        stored = client.workloads.submit({**training(), "project": "vision"})
    assert line.lost == losses
    assert [str(row.pk) for row in Workload.objects.all()] == [stored.id]
    assert Event.objects.filter(kind="submitted").count() == 1


def test_a_submission_that_is_given_up_was_submitted_once_at_most(live_server: Any, token: str) -> None:
    with (
        lossy(live_server.url, 100) as line,
        Client(Settings(line.address, token), sleep=_at_once) as client,
        pytest.raises(Unreachable),
    ):
        client.workloads.submit({**training(), "project": "vision"})
    assert Workload.objects.count() == 1


def test_a_cancellation_whose_answer_is_lost_is_still_answered(live_server: Any, token: str) -> None:
    with Client(Settings(live_server.url, token)) as client:
        stored = client.workloads.submit({**training(), "project": "vision"})
    with lossy(live_server.url, 1) as line, Client(Settings(line.address, token), sleep=_at_once) as client:
        assert client.workloads.cancel(stored.id).phase == "cancelled"


def _at_once(seconds: float) -> None:
    """No waiting between attempts: what is shown is what arrives, not when."""
