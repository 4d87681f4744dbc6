"""A scheduler that crashes repeatedly at a crash point."""

from contextlib import nullcontext
from datetime import timedelta

from django.db import connection

from projects.models import Pod, Workload
from scheduler.reports.invariants import check_invariants
from tests.scheduler.stage import Stage
from tests.support.crashes import Killed, killing_at

MOST_TICKS = 60


class CrashingScheduler:
    """A scheduler process that dies at the crash point, and its successor, which completes one tick."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name
        self.deaths = self.ticks = 0
        self.just_died = False

    def tick(self) -> None:
        self.ticks += 1
        assert self.ticks < MOST_TICKS, "the scheduler never came to rest"
        crashes, self.just_died = not self.just_died, False
        try:
            with killing_at(self.name) if crashes else nullcontext():
                self.stage.loop.tick()
        except Killed:
            self.deaths, self.just_died = self.deaths + 1, True
            assert not connection.in_atomic_block
            self.stage.loop = self.stage.new_loop()
        self.stage.clock.advance(1)
        self.assert_invariants()

    def assert_invariants(self) -> None:
        broken = [
            invariant
            for invariant in check_invariants(self.stage.clock.now() - timedelta(days=1))
            if not invariant.ok
        ]
        assert not broken, broken
        started = {what for call, what in self.stage.runtime.calls if call == "start"}
        assert started <= {str(pk) for pk in Pod.objects.values_list("pk", flat=True)}
        self._no_device_is_shared()

    def _no_device_is_shared(self) -> None:
        seen: set[tuple[str, str]] = set()
        for pod_id in self.stage.runtime.running():
            order = self.stage.runtime.order(pod_id)
            held = {(order.instance_id, device) for device in order.devices}
            assert not held & seen
            seen |= held

    def until(self, workload: Workload, phase: str) -> None:
        while self.stage.phase(workload) != phase:
            self.tick()
