"""Scaling history of the pool before the scene."""

from pools.models import NodePool
from tests import factories as make


def a_night(train: NodePool) -> None:
    """A fourth node came in the night and went again; once the provider had none."""
    make.scaling(train, "autoscale", "two gangs of 8 wait", at=make.ago(hours=6), before=3, after=4)
    error = "ordering 1 nodes: capacity: There is no Spot capacity available that matches your request."
    make.scaling(train, "error", error, at=make.ago(hours=5.98))
    make.scaling(train, "provision", "1 of 1 nodes came", at=make.ago(hours=5.5), after=4)
    gone = make.node(
        train, 3, state="ended", since=make.ago(hours=1.9), created_at=make.ago(hours=5.5),
        ended_at=make.ago(hours=1.9),
    )  # fmt: skip
    make.scaling(train, "ready", "ready after 288 s", at=make.ago(hours=5.42), node=gone)
    make.scaling(train, "autoscale", "9 slots of 32 slots in use", at=make.ago(hours=2.4), before=4, after=3)
    make.scaling(train, "drain", "scaled down to 3 nodes", at=make.ago(hours=2.4), node=gone, after=3)
    make.scaling(train, "terminate", "drained: scaled down to 3 nodes", at=make.ago(hours=1.9), node=gone)
