"""Tests for the phrases that tell users what to do for the smallest change."""

import pytest

from scheduler.engine.smallest_change.change import Change, ChangeKind
from scheduler.engine.smallest_change.phrases import action_phrase

EXAMPLES = {
    "Resume the workload": Change(ChangeKind.RESUMED),
    "Wait for the end of the restart delay (30 s left)": Change(ChangeKind.BACKOFF_OVER, before=30),
    "Wait until vision/data has completed": Change(
        ChangeKind.DEPENDENCY_ENDED, "vision/data", after="completed"
    ),
    "Wait for the end of the preemption delay (9 s left)": Change(
        ChangeKind.PREEMPTION_DELAY_OVER, before=9
    ),
    "Make the workload preemptible": Change(ChangeKind.PREEMPTIBLE),
    "Also allow pool spare": Change(ChangeKind.POOL_ALLOWED, "spare"),
    "Remove the node selector zone=a from role worker": Change(
        ChangeKind.LABEL_DROPPED, "worker", "zone", before="a"
    ),
    "Tolerate the taint infra in role worker": Change(ChangeKind.TAINT_TOLERATED, "worker", "infra"),
    "Also allow the GPU model H100 in role worker": Change(
        ChangeKind.GPU_MODEL_ALLOWED, "worker", after="H100"
    ),
    "Allow more than one rack": Change(ChangeKind.TOPOLOGY_DROPPED, resource="rack"),
    "Allow 4 replicas of role worker per node instead of 2": Change(
        ChangeKind.SPREAD_RAISED, "worker", before=2, after=4
    ),
    "Request 5 worker replicas instead of 6": Change(
        ChangeKind.REQUEST_LOWERED, "worker", "replicas", before=6, after=5
    ),
    "Request for each worker replica: 2 GPUs instead of 4": Change(
        ChangeKind.REQUEST_LOWERED, "worker", "devices", before=4, after=2
    ),
    "Limit each worker replica: 2 CPUs instead of 4": Change(
        ChangeKind.REQUEST_LOWERED, "worker", "limit.cpu", before=4000, after=2000
    ),
    "Set the max runtime to 1h instead of 8h": Change(
        ChangeKind.MAX_RUNTIME_LOWERED, before=28800, after=3600
    ),
    "End vision/data": Change(ChangeKind.WORKLOAD_ENDED, "vision/data"),
    "Set the priority to 60 instead of 50": Change(ChangeKind.PRIORITY_RAISED, before=50, after=60),
    "Give project vision a limit of 2 GPUs instead of 1": Change(
        ChangeKind.LIMIT_RAISED, "vision", "gpu", before=1000, after=2000
    ),
    "Give department research a quota of 2 GPUs instead of 1": Change(
        ChangeKind.QUOTA_RAISED, "research", "gpu", before=1000, after=2000
    ),
    "Wait for the end of minimum runtimes (60 s left)": Change(ChangeKind.MINIMUM_RUNTIME_OVER, before=60),
    "Uncordon node n3": Change(ChangeKind.NODE_OPENED, "n3"),
    "Enable consolidation in pool local": Change(ChangeKind.CONSOLIDATION_ENABLED, pool="local"),
    "Let consolidation in pool local move 3 pods at a time instead of 1": Change(
        ChangeKind.MAX_MOVES_RAISED, pool="local", before=1, after=3
    ),
    "Add 2 nodes to pool local": Change(ChangeKind.NODES_ADDED, pool="local", after=2),
}  # fmt: skip


@pytest.mark.parametrize(("phrase", "change"), EXAMPLES.items())
def test_suggested_change_is_phrased_as_an_instruction(phrase: str, change: Change) -> None:
    assert action_phrase(change, "vision") == phrase


def test_examples_cover_every_kind_of_suggested_change() -> None:
    assert {change.kind for change in EXAMPLES.values()} == set(ChangeKind)
