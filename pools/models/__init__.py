"""Here we keep what machines there are: pools, their nodes, and how their number came about."""
from pools.models.node import Node
from pools.models.pool import NodePool
from pools.models.scaling import ScalingEvent

__all__ = ["Node", "NodePool", "ScalingEvent"]
