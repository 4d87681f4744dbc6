"""Tests that pod utilization is recorded exactly once and shown."""

from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import pytest
from django.db.models import Q

from berth.db.loops import lease
from pools.runtimes.base import DeviceUsage, RuntimeFailure
from pools.runtimes.enclosure.levels import Isolation, IsolationLevel, IsolationPolicy
from projects.models import Workload
from projects.queries.idle_gpus import MAX_MEASUREMENT_AGE, idle_since
from scheduler import models
from scheduler.reports.utilization import summary
from scheduler.reports.utilization.over_time import choose_step, hourly_utilization, utilization_points
from scheduler.reports.utilization.readings import match_devices
from scheduler.reports.utilization.storage import HOUR, MINUTE, delete_old_measurements
from scheduler.reports.utilization.watch import ISOLATION_EVERY, UtilizationWatcher
from tests.fakes.clock import FixedClock
from tests.scheduler.measured_workload import SAMPLE_SECONDS, MeasuredWorkload
from tests.scheduler.stage import NOON, Stage
from tests.support.crashes import killed_at


@pytest.fixture
def measured_workload(stage: Stage) -> MeasuredWorkload:
    return MeasuredWorkload(stage)


def test_utilization_is_reported_next_to_allocation(measured_workload: MeasuredWorkload) -> None:
    first, second = measured_workload.pods
    measured_workload.pass_time()
    measured_workload.use(first, 30, memory_mib=3000)
    measured_workload.use(second, 3, memory_mib=500)
    measured_workload.gpus(90, 10)
    measured_workload.pass_time()
    use = measured_workload.now()
    assert (use.allocated_cpu_milli, use.cpu_milli) == (4000, 2200)
    assert (use.allocated_memory_mib, use.memory_mib) == (8192, 3500)
    assert (use.allocated_gpu_milli, use.measured_gpu_milli, use.gpu_milli) == (2000, 2000, 1000)
    assert (use.allocated_gpu_memory_mib, use.gpu_memory_mib) == (160_000, 80_000)
    assert (use.pods, use.measured, use.busy_percent) == (2, 2, 50.0)


def test_unmeasured_utilization_is_not_reported_as_zero(measured_workload: MeasuredWorkload) -> None:
    assert (measured_workload.now().measured, measured_workload.now().cpu_milli) == (0, None)
    measured_workload.pass_time()
    use = measured_workload.now()
    assert (use.cpu_milli, use.gpu_milli, use.gpu_memory_mib, use.busy_percent) == (0, None, None, None)
    measured_workload.gpus(None, 80, memory_mib=None)
    measured_workload.pass_time()
    use = measured_workload.now()
    assert (use.measured_gpu_milli, use.gpu_milli, use.busy_percent) == (1000, 800, 80.0)
    assert use.gpu_memory_mib is None
    measured_workload.stage.clock.advance(MAX_MEASUREMENT_AGE.total_seconds() + 1)
    assert measured_workload.now().cpu_milli is None, "an old measurement is not the current usage"


def test_pod_with_a_device_fraction_reports_the_devices_utilization(stage: Stage) -> None:
    measured_workload = MeasuredWorkload(stage, [{"name": "worker", "replicas": 1, "gpu": 0.25}])
    measured_workload.gpus(80, 0)
    measured_workload.pass_time()
    use = measured_workload.now()
    assert (use.allocated_gpu_milli, use.gpu_milli) == (250, 200)
    (pod,) = summary.summarize_pods(summary.running_allocations(), stage.clock.now())
    assert [(device.shared, device.busy_milli) for device in pod.devices] == [(True, 800)]


def test_sample_is_added_to_its_minute_and_hour(measured_workload: MeasuredWorkload) -> None:
    (first, _), clock = measured_workload.pods, measured_workload.stage.clock
    assert isinstance(clock, FixedClock)
    measured_workload.gpus(100, 0)
    for number in range(1, 13):
        measured_workload.use(first, number * SAMPLE_SECONDS)
        measured_workload.pass_time()
    now = clock.now()
    minutes = utilization_points(Q(pod__workload=measured_workload.workload), NOON, now, MINUTE)
    assert [point.cpu_milli for point in minutes][1:] == [1000, 1000, 1000]
    assert minutes[1].allocated_cpu_milli == 4000
    assert {(point.measured_gpu_milli, point.gpu_milli) for point in minutes} == {(2000, 1000)}
    (hour,) = utilization_points(Q(pod__workload=measured_workload.workload), NOON, now, HOUR)
    assert (hour.cpu_milli, hour.memory_mib, hour.gpu_memory_mib) == (1000, 1000, 80_000)
    (used,) = hourly_utilization([measured_workload.stage.cast.pool], now, 1)
    assert used.at == NOON
    assert used.measured == pytest.approx(measured_workload.sums(HOUR)[0] / 3600)
    assert used.used == pytest.approx(used.measured / 2)


@pytest.mark.parametrize("place", ["use.now", "use.over_time", "use.before_end"])
def test_killed_writer_leaves_no_partial_or_duplicate_data_points(
    measured_workload: MeasuredWorkload, place: str
) -> None:
    (first, _) = measured_workload.pods
    measured_workload.pass_time()
    before = {step: measured_workload.sums(step) for step in (MINUTE, HOUR)}
    measured_workload.use(first, 15)
    with killed_at(place):
        measured_workload.pass_time()
    assert {step: measured_workload.sums(step) for step in (MINUTE, HOUR)} == before
    measured_workload.use(first, 30)
    measured_workload.pass_time()
    for step in (MINUTE, HOUR):
        seconds, cpu = measured_workload.sums(step)
        assert seconds - before[step][0] == 60, "two pods, thirty seconds, measured or not"
        assert cpu - before[step][1] == pytest.approx(30_000)


@pytest.mark.heavy
def test_utilization_measurement_continues_in_another_process(measured_workload: MeasuredWorkload) -> None:
    measured_workload.pass_time()
    second = measured_workload.another("second")
    assert not second.run_once(), "the first process still holds the lease"
    held = lease.acquire("use", "first", 0.0)
    assert held is not None
    assert second.run_once()
    before = measured_workload.sums(HOUR)
    with pytest.raises(lease.LeadershipLost):
        _late_write(held)
    assert measured_workload.sums(HOUR) == before


def test_only_the_leader_measures_utilization(measured_workload: MeasuredWorkload) -> None:
    leads = {"first": True, "second": False}
    first, second = (
        UtilizationWatcher(
            measured_workload.stage.clock,
            lambda pool: measured_workload.runtime,
            SAMPLE_SECONDS,
            partial(leads.__getitem__, name),
        )
        for name in leads
    )
    first._holder, second._holder = leads
    assert (first.run_once(), second.run_once()) == (True, False)
    leads.update(first=False, second=True)
    assert (second.run_once(), first.run_once(), second.run_once()) == (False, False, True)


@pytest.mark.heavy
def test_unresponsive_runtime_does_not_block_other_runtimes(measured_workload: MeasuredWorkload) -> None:
    measured_workload.runtime.next("measure", RuntimeFailure("the head node does not respond"))
    measured_workload.pass_time()
    assert measured_workload.now().measured == 0
    measured_workload.pass_time()
    assert measured_workload.now().measured == 2


def test_allocated_gpu_that_is_idle_for_a_long_time_is_reported(measured_workload: MeasuredWorkload) -> None:
    workload, clock = measured_workload.workload, measured_workload.stage.clock

    def idle() -> dict[UUID, datetime]:
        return idle_since([workload.pk], clock.now())

    measured_workload.gpus(60, 2)
    measured_workload.pass_time()
    busy_until = clock.now()
    measured_workload.gpus(4, 0)
    for _ in range(60):
        measured_workload.pass_time(60)
        if clock.now() - busy_until < timedelta(hours=1):
            assert idle() == {}
    assert idle() == {workload.pk: busy_until}
    measured_workload.gpus(4, 20)
    measured_workload.pass_time(60)
    assert idle() == {}, "one of its GPUs is busy"


@pytest.mark.heavy
def test_unmeasured_gpu_is_not_idle(measured_workload: MeasuredWorkload) -> None:
    measured_workload.gpus(0, 0)
    measured_workload.pass_time()
    measured_workload.pass_time(3 * 3600)
    assert idle_since([measured_workload.workload.pk], measured_workload.stage.clock.now()) == {}
    measured_workload.runtime.devices.clear()
    for _ in range(70):
        measured_workload.pass_time(60)
    assert idle_since([measured_workload.workload.pk], measured_workload.stage.clock.now()) == {}


def test_data_points_expire_and_ended_pods_report_no_utilization(measured_workload: MeasuredWorkload) -> None:
    measured_workload.pass_time()
    measured_workload.stage.finish(measured_workload.workload)
    measured_workload.stage.tick()
    later = NOON + timedelta(hours=2)
    assert delete_old_measurements(minutes_before=NOON, hours_before=NOON) == 0
    assert delete_old_measurements(minutes_before=later, hours_before=NOON) == 4
    assert not models.PodUtilization.objects.exists()
    assert models.UtilizationPoint.objects.count() == 2
    assert delete_old_measurements(minutes_before=later, hours_before=later) == 2


@pytest.mark.heavy
def test_data_points_are_deleted_with_their_workload(measured_workload: MeasuredWorkload) -> None:
    measured_workload.pass_time()
    Workload.objects.filter(pk=measured_workload.workload.pk).delete()
    assert not models.UtilizationPoint.objects.exists()


@pytest.mark.heavy
def test_short_recent_ranges_have_minute_resolution(measured_workload: MeasuredWorkload) -> None:
    hours = [
        choose_step(NOON - timedelta(hours=back), NOON - timedelta(hours=back - span), NOON)
        for back, span in ((1, 1), (6, 6), (24, 24), (200, 1))
    ]
    assert hours == [MINUTE, MINUTE, HOUR, HOUR]


def test_devices_match_by_uuid_or_by_index() -> None:
    seen = (DeviceUsage(0, "GPU-a", 10, 1), DeviceUsage(1, "GPU-b", 20, 2))
    assert match_devices(["GPU-b", "GPU-a"], seen) == ((20, 2), (10, 1))
    assert match_devices([0, "1", "2"], seen) == ((10, 1), (20, 2), (None, None))
    assert match_devices(["0", "1"], ()) == ()
    assert match_devices([], seen) == ()


def _late_write(held: lease.HeldLease) -> None:
    from scheduler.reports.utilization.readings import Readings
    from scheduler.reports.utilization.storage import write_readings

    write_readings(Readings(NOON), held)


def test_node_isolation_and_its_changes_are_recorded(measured_workload: MeasuredWorkload) -> None:
    node, runtime = measured_workload.pods[0].node, measured_workload.runtime
    measured_workload.pass_time()
    node.refresh_from_db()
    limits = {"limits": [], "limits_obstacle": "", "ignores_limits": False}
    images = {"images": "", "images_obstacle": "", "seccomp": False, "seccomp_obstacle": ""}
    level = {"level": "users", "policy": "auto", "obstacle": "", "whole_devices": False}
    assert node.isolation == {**level, **limits, **images}
    runtime.isolation = Isolation(IsolationLevel.NONE, IsolationPolicy.REQUIRE, "no bubblewrap")
    for _ in range(ISOLATION_EVERY):
        measured_workload.pass_time()
    node.refresh_from_db()
    assert node.isolation["obstacle"] == "no bubblewrap"


@pytest.mark.heavy
def test_unresponsive_node_has_unknown_isolation(measured_workload: MeasuredWorkload) -> None:
    measured_workload.runtime.next("get_isolation", RuntimeFailure("unreachable"))
    measured_workload.pass_time()
    node = measured_workload.pods[0].node
    node.refresh_from_db()
    assert node.isolation is None
    measured_workload.pass_time()
    node.refresh_from_db()
    assert node.isolation is not None, "nodes without a report are asked again at once"
