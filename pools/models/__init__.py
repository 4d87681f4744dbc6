"""Database models of pools, nodes and their scaling history."""

from pools.models.environment import Environment, PluginSecret
from pools.models.installation import Installation
from pools.models.machine import JoinToken, JoinTokenUse, Machine, MachineUse
from pools.models.node import Node
from pools.models.node_claim import NodeClaim
from pools.models.pool import NodePool, PoolPrice
from pools.models.quota_group import QuotaGroup
from pools.models.scaling import ScalingEvent
from pools.models.secret import PoolSecret, SecretKind
from pools.models.ssh_host import SshHost

__all__ = [
    "Environment", "Installation", "JoinToken", "JoinTokenUse", "Machine", "MachineUse", "Node", "NodeClaim",
    "NodePool", "PluginSecret", "PoolPrice", "PoolSecret", "QuotaGroup", "ScalingEvent", "SecretKind",
    "SshHost",
]  # fmt: skip
