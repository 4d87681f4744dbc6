"""Browser test data: an array with completed, failed, cancelled and held tasks."""

from collections.abc import Iterable

from pools.models import Node
from projects.actor import Actor
from projects.models import Phase, Pod, PodState, Project, Workload, WorkloadArray
from projects.services import arrays
from scheduler.models import Allocation
from tests import factories as make
from tests.support.present import present

# Tasks that have ended. Two ran at a time, one after the other on the same two GPUs.
ENDED_TASKS, MAX_RUNNING, TASK_GPUS = 47, 2, 2
FIRST_START, TASK_MINUTES, PAUSE = 179, 3.9, 0.1  # minutes ago, and minutes
FAILED, CANCELLED = (12, 30), 31
# GPUs of all running tasks, and the minutes since their first start and last end, for the usage history
USAGE = (MAX_RUNNING * TASK_GPUS, FIRST_START, FIRST_START - (TASK_MINUTES + PAUSE) * ENDED_TASKS / 2)


def create_array(project: Project, actor: Actor) -> WorkloadArray:
    document = {
        "name": "lr-sweep",
        "project": project.name,
        "command": "python train.py --lr $LR --seed $SEED",
        "pools": ["train"],
        "priority": 40,  # as that of segment-eval, which would be preempted otherwise
        "array": {
            "matrix": {"LR": ["1e-2", "3e-3", "1e-3"], "SEED": list(range(40))},
            "max_running": MAX_RUNNING,
        },
        "roles": [{"name": "worker", "gpu": TASK_GPUS}],
    }
    array = arrays.submit(actor=actor, document=document, now=make.ago(hours=3)).array
    tasks = Workload.objects.filter(array=array).order_by("array_index")
    ended = [*tasks.filter(array_index__lt=ENDED_TASKS)]
    for task in ended:
        _end(task)
    columns = ("first_started_at", "started_at", "ended_at", "since", "run", "held", "phase", "reason",
               "message", "exit_code")  # fmt: skip
    Workload.objects.bulk_update(ended, columns)
    _create_pods(ended)
    # The next two tasks have been pending since the last two tasks ended.
    released = max(present(task.ended_at) for task in ended)
    tasks.filter(array_index__in=(ENDED_TASKS, ENDED_TASKS + 1)).update(
        held=False, since=released, pending_since=released
    )
    return array


def _end(task: Workload) -> None:
    """Set the times and the outcome of a task that has ended."""
    index = present(task.array_index)
    started = FIRST_START - index // MAX_RUNNING * (TASK_MINUTES + PAUSE)
    task.first_started_at = task.started_at = make.ago(minutes=started)
    task.ended_at = task.since = make.ago(minutes=started - TASK_MINUTES)
    task.run, task.held = 1, False
    task.phase, task.reason, task.message = Phase.COMPLETED, "", "All pods succeeded."
    if index in FAILED:
        task.phase, task.reason, task.exit_code = Phase.FAILED, "Failed", 1
        task.message = "Pod worker-0 ended with exit code 1."
    elif index == CANCELLED:
        task.phase, task.reason, task.message = Phase.CANCELLED, "Cancelled", "Cancelled by dave."


def _create_pods(tasks: Iterable[Workload]) -> None:
    """Create the pod of each ended task, with the allocation of its GPUs."""
    node = Node.objects.get(name="train-2")
    pods = Pod.objects.bulk_create(
        Pod(workload=task, role="worker", index=0, rank=0, run=1, node=node,
            state=PodState.FAILED if task.exit_code else PodState.SUCCEEDED, exit_code=task.exit_code or 0,
            started_at=task.started_at, ended_at=task.ended_at, since=present(task.ended_at))
        for task in tasks
    )  # fmt: skip
    Allocation.objects.bulk_create(
        Allocation(pod=pod, node=node, devices=_devices(pod.workload), gpu_milli=1000, cpu_milli=1000,
                   memory_mib=4096, bound_at=present(pod.started_at), released_at=pod.ended_at)
        for pod in pods
    )  # fmt: skip


def _devices(task: Workload) -> list[int]:
    first = present(task.array_index) % MAX_RUNNING * TASK_GPUS
    return list(range(first, first + TASK_GPUS))
