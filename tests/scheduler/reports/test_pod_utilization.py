"""Tests for pod utilization, which is recorded once and then shown."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db.models import Q

from berth.core.clock import FixedClock
from berth.db import crash_points, lease
from pools.runtimes.base import DeviceUse, PodUse, RuntimeFailure
from projects.idle_gpus import FRESH, idle_since
from projects.models import Pod, Workload
from scheduler import models
from scheduler.reports.utilization import summary
from scheduler.reports.utilization.over_time import course, step_for, used_course
from scheduler.reports.utilization.readings import on_node
from scheduler.reports.utilization.storage import HOUR, MINUTE, forget_old
from scheduler.reports.utilization.watch import UseWatch
from tests.scheduler.stage import NOON, Stage

TWO = [{"name": "worker", "replicas": 2, "gpu": 1, "cpu": 2, "memory_mib": 4096}]
PACE = 15


class Died(BaseException):
    """Simulates kill -9."""


@pytest.fixture(autouse=True)
def no_listener_afterwards() -> Iterator[None]:
    yield
    crash_points.listen(None)


class Measuring:
    """A workload of two pods on one node, whose utilization the test sets."""

    def __init__(self, stage: Stage, roles: list[dict[str, object]] | None = None) -> None:
        self.stage, self.runtime = stage, stage.runtime
        stage.cast.pool.nodes.update(gpu_memory_mib=80_000)
        self.workload = stage.submit(roles=roles or TWO)
        stage.tick(2)
        self.pods = stage.pods(self.workload, "running")
        self.watch = self.another("first")

    def another(self, name: str) -> UseWatch:
        watch = UseWatch(self.stage.clock, lambda pool: self.runtime, PACE)
        watch._holder = name
        return watch

    def use(self, pod: Pod, cpu_seconds: float, memory_mib: int = 1000) -> None:
        self.runtime.uses[str(pod.pk)] = PodUse(cpu_seconds, memory_mib)

    def gpus(self, *busy: int | None, memory_mib: int | None = 40_000) -> None:
        """Set the memory used on each of the node's GPUs."""
        node = self.pods[0].node
        self.runtime.devices[node.instance_id] = tuple(
            DeviceUse(index, str(node.devices[index]), percent and percent * 10, memory_mib)
            for index, percent in enumerate(busy)
        )

    def pass_time(self, seconds: float = PACE) -> None:
        self.stage.clock.advance(seconds)
        assert self.watch.once()

    def now(self) -> summary.Use:
        held = summary.running().filter(pod__workload=self.workload)
        return summary.together(pod.use for pod in summary.of_pods(held, self.stage.clock.now()))

    def sums(self, step: int) -> tuple[float, float]:
        rows = models.UtilizationPoint.objects.filter(step=step, pod__workload=self.workload)
        return sum(row.seconds for row in rows), sum(row.cpu_milli_seconds for row in rows)


@pytest.fixture
def measuring(stage: Stage) -> Measuring:
    return Measuring(stage)


def test_utilization_is_reported_beside_allocation(measuring: Measuring) -> None:
    first, second = measuring.pods
    measuring.pass_time()
    measuring.use(first, 30, memory_mib=3000)
    measuring.use(second, 3, memory_mib=500)
    measuring.gpus(90, 10)
    measuring.pass_time()
    use = measuring.now()
    assert (use.allocated_cpu_milli, use.cpu_milli) == (4000, 2200)
    assert (use.allocated_memory_mib, use.memory_mib) == (8192, 3500)
    assert (use.allocated_gpu_milli, use.measured_gpu_milli, use.gpu_milli) == (2000, 2000, 1000)
    assert (use.allocated_gpu_memory_mib, use.gpu_memory_mib) == (160_000, 80_000)
    assert (use.pods, use.measured, use.busy_percent) == (2, 2, 50.0)


def test_unmeasured_is_not_reported_as_zero(measuring: Measuring) -> None:
    assert (measuring.now().measured, measuring.now().cpu_milli) == (0, None)
    measuring.pass_time()
    use = measuring.now()
    assert (use.cpu_milli, use.gpu_milli, use.gpu_memory_mib, use.busy_percent) == (0, None, None, None)
    measuring.gpus(None, 80, memory_mib=None)
    measuring.pass_time()
    use = measuring.now()
    assert (use.measured_gpu_milli, use.gpu_milli, use.busy_percent) == (1000, 800, 80.0)
    assert use.gpu_memory_mib is None
    measuring.stage.clock.advance(FRESH.total_seconds() + 1)
    assert measuring.now().cpu_milli is None, "what was read long ago is not what is used now"


def test_fraction_of_a_device_reports_the_devices_utilization(stage: Stage) -> None:
    measuring = Measuring(stage, [{"name": "worker", "replicas": 1, "gpu": 0.25}])
    measuring.gpus(80, 0)
    measuring.pass_time()
    use = measuring.now()
    assert (use.allocated_gpu_milli, use.gpu_milli) == (250, 200)
    (pod,) = summary.of_pods(summary.running(), stage.clock.now())
    assert [(device.shared, device.busy_milli) for device in pod.devices] == [(True, 800)]


def test_sample_counts_in_its_minute_and_its_hour(measuring: Measuring) -> None:
    (first, _), clock = measuring.pods, measuring.stage.clock
    assert isinstance(clock, FixedClock)
    measuring.gpus(100, 0)
    for number in range(1, 13):
        measuring.use(first, number * PACE)
        measuring.pass_time()
    now = clock.now()
    minutes = course(Q(pod__workload=measuring.workload), NOON, now, MINUTE)
    assert [point.cpu_milli for point in minutes][1:] == [1000, 1000, 1000]
    assert minutes[1].allocated_cpu_milli == 4000
    assert {(point.measured_gpu_milli, point.gpu_milli) for point in minutes} == {(2000, 1000)}
    (hour,) = course(Q(pod__workload=measuring.workload), NOON, now, HOUR)
    assert (hour.cpu_milli, hour.memory_mib, hour.gpu_memory_mib) == (1000, 1000, 80_000)
    (used,) = used_course([measuring.stage.cast.pool], now, 1)
    assert (used.at, used.measured) == (NOON, pytest.approx(measuring.sums(HOUR)[0] / 3600))
    assert used.used == pytest.approx(used.measured / 2)


@pytest.mark.parametrize("place", ["use.now", "use.over_time", "use.before_end"])
def test_killed_writer_leaves_no_partial_or_double_points(measuring: Measuring, place: str) -> None:
    (first, _) = measuring.pods
    measuring.pass_time()
    before = {step: measuring.sums(step) for step in (MINUTE, HOUR)}
    measuring.use(first, 15)
    crash_points.listen(lambda name: _die(name, place))
    with pytest.raises(Died):
        measuring.pass_time()
    crash_points.listen(None)
    assert {step: measuring.sums(step) for step in (MINUTE, HOUR)} == before
    measuring.use(first, 30)
    measuring.pass_time()
    for step in (MINUTE, HOUR):
        seconds, cpu = measuring.sums(step)
        assert seconds - before[step][0] == 60, "two pods, thirty seconds, also those it was not seen in"
        assert cpu - before[step][1] == pytest.approx(30_000)


def test_another_process_takes_over_measuring(measuring: Measuring) -> None:
    measuring.pass_time()
    second = measuring.another("second")
    assert not second.once(), "the first one still holds the lease"
    held = lease.acquire("use", "first", 0.0)
    assert held is not None
    assert second.once()
    before = measuring.sums(HOUR)
    with pytest.raises(lease.LeadershipLost):
        _late_write(held)
    assert measuring.sums(HOUR) == before


def test_only_the_leader_measures_and_releases_the_task(measuring: Measuring) -> None:
    leads = {"first": True, "second": False}
    first, second = (
        UseWatch(measuring.stage.clock, lambda pool: measuring.runtime, PACE, lambda name=name: leads[name])
        for name in leads
    )
    first._holder, second._holder = leads
    assert (first.once(), second.once()) == (True, False)
    leads.update(first=False, second=True)
    assert (second.once(), first.once(), second.once()) == (False, False, True)


def test_unresponsive_runtime_does_not_block_others(measuring: Measuring) -> None:
    measuring.runtime.next("measure", RuntimeFailure("its head is away"))
    measuring.pass_time()
    assert measuring.now().measured == 0
    measuring.pass_time()
    assert measuring.now().measured == 2


def test_allocated_gpu_that_is_idle_for_long_is_reported(measuring: Measuring) -> None:
    workload, clock = measuring.workload, measuring.stage.clock

    def idle() -> dict[object, object]:
        return dict(idle_since([workload.pk], clock.now()))

    measuring.gpus(60, 2)
    measuring.pass_time()
    busy_until = clock.now()
    measuring.gpus(4, 0)
    for _ in range(60):
        measuring.pass_time(60)
        if clock.now() - busy_until < timedelta(hours=1):
            assert idle() == {}
    assert idle() == {workload.pk: busy_until}
    measuring.gpus(4, 20)
    measuring.pass_time(60)
    assert idle() == {}, "one of its GPUs works"


def test_unmeasured_gpu_is_not_idle(measuring: Measuring) -> None:
    measuring.gpus(0, 0)
    measuring.pass_time()
    measuring.pass_time(3 * 3600)
    assert idle_since([measuring.workload.pk], measuring.stage.clock.now()) == {}
    measuring.runtime.devices.clear()
    for _ in range(70):
        measuring.pass_time(60)
    assert idle_since([measuring.workload.pk], measuring.stage.clock.now()) == {}


def test_points_expire_and_ended_pods_lose_their_utilization(measuring: Measuring) -> None:
    measuring.pass_time()
    measuring.stage.finish(measuring.workload)
    measuring.stage.tick()
    later = NOON + timedelta(hours=2)
    assert forget_old(minutes_before=NOON, hours_before=NOON) == 0
    assert forget_old(minutes_before=later, hours_before=NOON) == 4
    assert not models.PodUtilization.objects.exists()
    assert models.UtilizationPoint.objects.count() == 2
    assert forget_old(minutes_before=later, hours_before=later) == 2


def test_points_are_deleted_with_their_workload(measuring: Measuring) -> None:
    measuring.pass_time()
    Workload.objects.filter(pk=measuring.workload.pk).delete()
    assert not models.UtilizationPoint.objects.exists()


def test_minutes_are_shown_for_short_recent_ranges(measuring: Measuring) -> None:
    hours = [
        step_for(NOON - timedelta(hours=back), NOON - timedelta(hours=back - span), NOON)
        for back, span in ((1, 1), (6, 6), (24, 24), (200, 1))
    ]
    assert hours == [MINUTE, MINUTE, HOUR, HOUR]


def test_devices_match_by_uuid_or_by_index() -> None:
    seen = (DeviceUse(0, "GPU-a", 10, 1), DeviceUse(1, "GPU-b", 20, 2))
    assert on_node(["GPU-b", "GPU-a"], seen) == ((20, 2), (10, 1))
    assert on_node([0, "1", "2"], seen) == ((10, 1), (20, 2), (None, None))
    assert on_node(["0", "1"], ()) == ()
    assert on_node([], seen) == ()


def _die(name: str, at: str) -> None:
    if name == at:
        raise Died(name)


def _late_write(held: lease.Held) -> None:
    from scheduler.reports.utilization.readings import Readings
    from scheduler.reports.utilization.storage import write_readings

    write_readings(Readings(NOON), held)
