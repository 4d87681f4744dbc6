"""Tests for a workload from submission to completion."""

from projects.models import Event, Phase
from projects.services.workloads import control
from scheduler.models import Allocation, Cycle, DeviceClaim
from tests.scheduler.stage import Stage
from tests.support.present import present


def test_workload_is_placed_started_and_completed(stage: Stage) -> None:
    workload = stage.submit()
    stage.tick()
    assert stage.phase(workload) == Phase.STARTING
    assert workload.pool_id == stage.cast.pool.pk
    stage.tick()
    assert stage.phase(workload) == Phase.RUNNING
    assert (workload.run, workload.gpu_milli_now) == (1, 2000)
    assert DeviceClaim.objects.count() == 2
    stage.finish(workload)
    stage.tick()
    assert stage.phase(workload) == Phase.COMPLETED
    assert (workload.exit_code, workload.gpu_milli_now) == (0, 0)
    assert not DeviceClaim.objects.exists()
    assert not Allocation.objects.filter(released_at__isnull=True).exists()
    kinds = list(Event.objects.filter(workload_id=workload.pk).order_by("id").values_list("kind", flat=True))
    assert kinds == ["submitted", "starting", "running", "completed"]


def test_each_pod_receives_its_rank_and_exclusive_devices(stage: Stage) -> None:
    workload = stage.submit()
    stage.tick()
    orders = [stage.runtime.order(str(pod.pk)) for pod in stage.pods(workload)]
    assert [order.env["RANK"] for order in orders] == ["0", "1"]
    assert {order.env["WORLD_SIZE"] for order in orders} == {"2"}
    assert len({(order.env["MASTER_ADDR"], order.env["MASTER_PORT"]) for order in orders}) == 1
    assert len({(order.instance_id, *order.devices) for order in orders}) == 2
    assert orders[0].env["BERTH_PROJECT"] == "vision"
    assert orders[0].command == ("/bin/sh", "-c", "true")


def test_workload_that_does_not_fit_is_pending_with_reasons(stage: Stage) -> None:
    first = stage.submit("first", roles=[{"name": "worker", "replicas": 4, "gpu": 1}])
    second = stage.submit("second", preemptible=False)
    stage.tick(2)
    assert stage.phase(first) == Phase.RUNNING
    assert stage.phase(second) == Phase.PENDING
    assert second.reason and second.message
    explanation = present(second.explanation)
    assert explanation["blockers"][0]["reason"] == second.reason
    assert explanation["queue_position"] == 1


def test_cancelled_workload_releases_all_resources(stage: Stage) -> None:
    workload = stage.submit()
    stage.tick(2)
    control.cancel(actor=stage.cast.alice, workload=workload)
    assert stage.phase(workload) == Phase.STOPPING
    stage.tick(2)
    assert stage.phase(workload) == Phase.CANCELLED
    assert stage.runtime.running() == ()
    assert not DeviceClaim.objects.exists()


def test_second_tick_on_an_unchanged_cluster_does_nothing(stage: Stage) -> None:
    stage.submit()
    stage.tick(3)
    calls, cycles = len(stage.runtime.calls), Cycle.objects.count()
    assert not stage.loop.tick()
    assert [name for name, _ in stage.runtime.calls[calls:]] == ["look"]
    assert Cycle.objects.count() == cycles


def test_elastic_pod_receives_the_size_range_of_its_gang(stage: Stage) -> None:
    # WORLD_SIZE is the size at start. An elastic rendezvous also needs the range.
    roles = [{"name": "worker", "min": 1, "max": 3, "gpu": 1}]
    elastic = stage.submit("elastic", kind="elastic", roles=roles)
    stage.tick(4)
    environments = [stage.runtime.order(str(pod.pk)).env for pod in stage.pods(elastic, "running")]
    assert len(environments) == 3
    assert {(env["BERTH_WORLD_MIN"], env["BERTH_WORLD_MAX"]) for env in environments} == {("1", "3")}
    assert all(1 <= int(env["WORLD_SIZE"]) <= 3 for env in environments)
