"""Browser test data: an array with completed, failed, cancelled and held tasks."""

from pools.models import Node
from projects.actor import Actor
from projects.models import Pod, PodState, Project, Workload, WorkloadArray
from projects.services import arrays
from tests import factories as make
from tests.present import present


def create_array(project: Project, actor: Actor) -> WorkloadArray:
    document = {
        "name": "lr-sweep",
        "project": project.name,
        "command": "python train.py --lr $LR --seed $SEED",
        "pools": ["train"],
        "array": {
            "matrix": {"LR": ["1e-2", "3e-3", "1e-3"], "SEED": list(range(40))},
            "max_running": 2,
        },
        "roles": [{"name": "worker", "gpu": 1}],
    }
    array = arrays.submit(actor=actor, document=document, now=make.ago(hours=3)).array
    tasks = Workload.objects.filter(array=array)
    columns = {
        "first_started_at": make.ago(hours=2),
        "started_at": make.ago(hours=2),
        "run": 1,
        "held": False,
    }
    ended = {**columns, "ended_at": make.ago(minutes=9), "since": make.ago(minutes=9)}
    tasks.filter(array_index__lt=47).update(
        phase="completed", reason="", message="All pods succeeded.", **ended
    )
    tasks.filter(array_index__in=(12, 30)).update(
        phase="failed", reason="Failed", message="Pod worker-0 ended with exit code 1.", exit_code=1, **ended
    )
    node = Node.objects.get(pool__name="train", state="ended")
    Pod.objects.bulk_create(
        Pod(workload=task, role="worker", index=0, rank=0, run=1, node=node, state=PodState.FAILED,
            exit_code=1, started_at=task.started_at, ended_at=task.ended_at, since=present(task.ended_at))
        for task in tasks.filter(phase="failed")
    )  # fmt: skip
    tasks.filter(array_index=31).update(
        phase="cancelled", reason="Cancelled", message="Cancelled by dave.", **ended
    )
    # The next two tasks were evicted and may start again in two minutes.
    tasks.filter(array_index__in=(47, 48)).update(
        held=False,
        backoff_until=make.ago(minutes=-2),
        preemptions=1,
        run=1,
        since=make.ago(minutes=3),
        pending_since=make.ago(minutes=3),
        first_started_at=make.ago(hours=1),
    )
    return array
