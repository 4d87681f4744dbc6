"""Browser test data: the scaling history of pool `train`."""

from pools.models import NodePool
from tests import factories as make


def create_scaling_history(train: NodePool) -> None:
    make.scaling(train, "autoscale", "2 gangs of 8 GPUs are pending", at=make.ago(hours=6), before=3, after=4)
    error = "ordered 1 node: There is no Spot capacity available that matches your request."
    make.scaling(train, "error", error, at=make.ago(hours=5.98))
    make.scaling(train, "provision", "1 node provided", at=make.ago(hours=5.5), after=4)
    ended = make.node(
        train, 3, state="ended", since=make.ago(hours=1.9), created_at=make.ago(hours=5.5),
        ended_at=make.ago(hours=1.9),
    )  # fmt: skip
    make.scaling(train, "ready", "ready after 288 s", at=make.ago(hours=5.42), node=ended)
    make.scaling(train, "autoscale", "9 of 32 GPUs allocated", at=make.ago(hours=2.4), before=4, after=3)
    make.scaling(train, "drain", "scaled down to 3 nodes", at=make.ago(hours=2.4), node=ended, after=3)
    make.scaling(train, "terminate", "drained: scaled down to 3 nodes", at=make.ago(hours=1.9), node=ended)
