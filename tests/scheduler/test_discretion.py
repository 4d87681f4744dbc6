"""Here we show that a reason does not tell what strangers call their work."""
import pytest

from scheduler.engine.plan import Reason, Refusal
from scheduler.engine.reasons import blocker
from scheduler.explanations import Explanations
from scheduler.observe import observe
from scheduler.specs import Specs
from tests.scheduler.stage import Stage


def told_behind(stage: Stage, other: str) -> str:
    """What the row of vision/train-1 says when it has to wait behind the other."""
    workload = stage.submit()
    reasons = (blocker(Reason.BEHIND_RESERVATION, {"behind": other}),)
    refusal = Refusal("vision/train-1", reasons, position=1, key=("submitted",), pool="local")
    Explanations().write(observe(stage.clock.now(), Specs()), [refusal], None)
    workload.refresh_from_db()
    assert workload.reason == "BehindReservation"
    return f"{workload.message} {workload.explanation}"


@pytest.mark.parametrize("other", ["ads/secret-bid", "visions/secret-bid"])
def test_who_waits_behind_a_stranger_does_not_learn_its_name(stage: Stage, other: str) -> None:
    told = told_behind(stage, other)
    assert "secret-bid" not in told
    assert "a workload of another project" in told


def test_who_waits_behind_a_neighbour_learns_its_name(stage: Stage) -> None:
    assert "vision/first" in told_behind(stage, "vision/first")
