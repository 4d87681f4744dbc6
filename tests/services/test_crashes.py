"""Tests for service processes that crash between any two steps of a scale request."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from django.db import connection

from projects.elastic.weights import reset_interrupted_syncs
from projects.models import Service
from tests.services.stage import ServiceStage
from tests.support.crashes import Killed, killing_at

POINTS = (
    "services.looked", "services.settled", "services.before_register", "services.registered",
    "services.isolated", "services.unregistered", "services.marked_sync", "services.copied",
    "services.done",
)  # fmt: skip
# The crash that leaves the most to repair; tests of the others are heavy.
AFTER_CALL = "services.copied"


class CrashingProcess:
    """A service process that dies at the crash point. Its successor completes the pass."""

    def __init__(self, stage: ServiceStage, name: str) -> None:
        self.stage, self.name, self.deaths, self.just_died = stage, name, 0, False

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(90):
            if done():
                return
            self.stage.tick_scheduler()
            self.stage.sync_engines()
            self._run_pass()
            self.stage.assert_no_orphans()
            self.stage.stage.clock.advance(1)
        raise AssertionError("the request never ended")

    def _run_pass(self) -> None:
        crashes, self.just_died = not self.just_died, False
        try:
            with killing_at(self.name) if crashes else nullcontext():
                self.stage.step_services()
        except Killed:
            self.deaths, self.just_died = self.deaths + 1, True
            assert not connection.in_atomic_block
            self.stage.lead("first")  # a new epoch fences off the dead process
            reset_interrupted_syncs(self.stage.reconcile_context.fence)


def service_with_weight_sync(stage: ServiceStage) -> Service:
    return stage.serve(weight_sync=True, scale_out_timeout=300)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == AFTER_CALL else pytest.mark.heavy) for name in POINTS]
)
def test_scale_requests_complete_despite_crashes(stage: ServiceStage, name: str) -> None:
    service, process = service_with_weight_sync(stage), CrashingProcess(stage, name)
    scale_out = stage.scale_out(service, num_replicas=3)
    process.until(lambda: stage.reload(scale_out).is_final)
    assert (stage.reload(scale_out).status, stage.states(service)) == ("ACTIVE", ["ACTIVE"] * 3)
    cancelled = stage.scale_out(service, num_replicas=5)
    process.until(lambda: stage.reload(cancelled).status in ("WEIGHT_SYNCING", "READY"))
    stage.cancel(cancelled)
    process.until(lambda: stage.reload(cancelled).is_final)
    assert stage.reload(cancelled).status == "CANCELLED"
    scale_in = stage.scale_in(service, num_replicas=1)
    process.until(lambda: stage.reload(scale_in).is_final)
    assert stage.reload(scale_in).status == "COMPLETED"
    assert stage.states(service) == ["ACTIVE", *["REMOVED"] * 4]
    assert list(stage.router.registered) == [engine.url for engine in stage.live(service)]
    assert {child.phase for child in stage.children()} == {"cancelled"}
    assert process.deaths > 0, "the crash point was never reached"
