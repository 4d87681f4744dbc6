"""Here every change to pools and nodes has its one door."""
from pools.services.nodes import cordon_node, drain_node, node_emptied, terminate_node, uncordon_node
from pools.services.pools import create_pool, delete_pool, edit_pool, pause_pool, resume_pool, set_wanted
from pools.services.pressure import report_pressure

__all__ = [
    "cordon_node", "create_pool", "delete_pool", "drain_node", "edit_pool", "node_emptied", "pause_pool",
    "report_pressure", "resume_pool", "set_wanted", "terminate_node", "uncordon_node",
]  # fmt: skip
