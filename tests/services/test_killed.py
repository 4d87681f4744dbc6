"""Berth, killed between any two steps of a scale request, and the recovery."""

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from berth.db import crash_points as points
from projects.elastic.weights import clear_marks
from projects.models import Service
from tests.services.stage import ServiceStage

POINTS = (
    "services.looked", "services.settled", "services.before_register", "services.registered",
    "services.isolated", "services.unregistered", "services.marked_sync", "services.copied",
    "services.done",
)  # fmt: skip


class Died(BaseException):
    """Not an Exception: nothing may catch it and go on."""


@pytest.fixture(autouse=True)
def nobody_listens_afterwards() -> Iterator[None]:
    yield
    points.listen(None)


class Life:
    """A process dies whenever it comes to the point; the one after it gets through one pass."""

    def __init__(self, stage: ServiceStage, name: str) -> None:
        self.stage, self.name, self.deaths, self.just_died = stage, name, 0, False

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(90):
            if done():
                return
            self.stage.stage.loop.tick()
            self.stage.processes()
            self._pass()
            self.stage.nothing_is_lost()
            self.stage.stage.clock.advance(1)
        raise AssertionError("it never came to an end")

    def _pass(self) -> None:
        points.listen(None if self.just_died else self._die)
        self.just_died = False
        try:
            self.stage.pass_over()
        except Died:
            self.deaths, self.just_died = self.deaths + 1, True
            assert not connection.in_atomic_block
            self.stage.lead("first")  # in a new epoch: the one before may not write any more
            clear_marks(self.stage.ports.fence)
        points.listen(None)

    def _die(self, name: str) -> None:
        if name == self.name:
            raise Died(name)


def begun(stage: ServiceStage) -> Service:
    return stage.serve(weight_sync=True, scale_out_timeout=300)


@pytest.mark.parametrize("name", POINTS)
def test_a_service_grows_is_cancelled_and_shrinks_through_any_number_of_deaths(
    stage: ServiceStage, name: str
) -> None:
    service, life = begun(stage), Life(stage, name)
    out = stage.out(service, num_replicas=3)
    life.until(lambda: stage.fresh(out).is_final)
    assert (stage.fresh(out).status, stage.states(service)) == ("ACTIVE", ["ACTIVE"] * 3)
    taken_back = stage.out(service, num_replicas=5)
    life.until(lambda: stage.fresh(taken_back).status in ("WEIGHT_SYNCING", "READY"))
    stage.cancel(taken_back)
    life.until(lambda: stage.fresh(taken_back).is_final)
    assert stage.fresh(taken_back).status == "CANCELLED"
    into = stage.into(service, num_replicas=1)
    life.until(lambda: stage.fresh(into).is_final)
    assert stage.fresh(into).status == "COMPLETED"
    assert stage.states(service) == ["ACTIVE", *["REMOVED"] * 4]
    assert list(stage.router.has) == [engine.url for engine in stage.live(service)]
    assert {child.phase for child in stage.children()} == {"cancelled"}
    assert life.deaths > 0, "the point was never reached"
