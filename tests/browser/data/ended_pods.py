"""Browser test data: pods of ended workloads, which ran on a node that has been terminated since."""

from datetime import timedelta
from typing import Any

from pools.models import Node
from projects.models import Pod, PodState, Workload
from tests.present import present

ENDED = ("vit-baseline", "vit-large-lr3", "ranker-test", "tts-smoke")


def create_ended_pods(scene: Any) -> None:
    """Create two pods for each ended workload. The first failed pod of a failed workload is worker-1."""
    node = Node.objects.get(pool=scene.pools["train"], state="ended")
    Pod.objects.bulk_create(
        _ended_pod(scene.workloads[name], node, index) for name in ENDED for index in range(2)
    )


def _ended_pod(workload: Workload, node: Node, index: int) -> Pod:
    failed = workload.phase == "failed"
    ended = present(workload.ended_at) + timedelta(seconds=1 - index if failed else 0)
    return Pod(
        workload=workload, role="worker", index=index, rank=index, run=workload.run, node=node,
        state=PodState.FAILED if failed else PodState.SUCCEEDED, exit_code=int(failed),
        started_at=workload.started_at, created_at=present(workload.started_at), ended_at=ended, since=ended,
    )  # fmt: skip
