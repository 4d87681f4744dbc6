"""Here we show that a deleted workload leaves nothing on machines, whatever dies in between."""
import pytest
from django.db import connection

from berth.db.lease import LeadershipLost
from pools.runtimes.base import RuntimeFailure
from projects.models import Leftover, Phase, Workload
from projects.services import workloads
from scheduler.dispatch.leftovers import clear_leftovers
from tests.scheduler.stage import Stage


def ended(stage: Stage) -> Workload:
    workload = stage.submit(roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    stage.tick(2)
    for pod in stage.pods(workload):
        stage.runtime.write(str(pod.pk), b"loss 0.1\n")
    stage.finish(workload)
    stage.tick(2)
    assert stage.phase(workload) == Phase.COMPLETED
    return workload


def kept(stage: Stage, pods: list[str]) -> list[bytes]:
    return [stage.runtime.read_log(pod, 0, 100).data for pod in pods]


def test_logs_and_workspace_go_with_the_workload(stage: Stage) -> None:
    workload = ended(stage)
    pods = [str(pod.pk) for pod in stage.pods(workload)]
    name = str(workload.pk)
    assert kept(stage, pods) == [b"loss 0.1\n"] * 2
    workloads.delete(acting=stage.cast.alice, workload=workload)
    assert clear_leftovers(stage.loop.post) == 3
    assert kept(stage, pods) == [b"", b""]
    assert ("drop_workspace", name) in stage.runtime.calls
    assert not set(pods) & set(stage.runtime.known())
    assert not Leftover.objects.exists()
    assert clear_leftovers(stage.loop.post) == 0


def test_the_loop_clears_away_by_itself(stage: Stage) -> None:
    workloads.delete(acting=stage.cast.alice, workload=ended(stage))
    stage.clock.advance(120)
    stage.tick()
    assert not Leftover.objects.exists()


def test_what_cannot_be_cleared_away_now_is_cleared_away_later(stage: Stage) -> None:
    workload = ended(stage)
    workloads.delete(acting=stage.cast.alice, workload=workload)
    stage.runtime.next("drop_workspace", RuntimeFailure("the disk is away"))
    clear_leftovers(stage.loop.post)
    assert Leftover.objects.filter(name=str(workload.pk)).exists()
    clear_leftovers(stage.loop.post)
    assert not Leftover.objects.exists()


def test_a_workload_that_never_ran_leaves_nothing(stage: Stage) -> None:
    workload = workloads.cancel(acting=stage.cast.alice, workload=stage.submit())
    workloads.delete(acting=stage.cast.alice, workload=workload)
    assert not Leftover.objects.exists()


def test_a_former_leader_forgets_no_leftover(stage: Stage) -> None:
    workloads.delete(acting=stage.cast.alice, workload=ended(stage))
    former = stage.loop.post
    let_the_lease_run_out()
    stage.new_loop("second")
    with pytest.raises(LeadershipLost):
        clear_leftovers(former)
    assert Leftover.objects.exists()


def let_the_lease_run_out() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE berth_db_lease SET expires_at = clock_timestamp() - interval '1 second'")
