"""The write services of pools and nodes."""

from pools.services.joining import call, join, leave
from pools.services.machines import issue_join_token, remove_machine, revoke_join_token
from pools.services.nodes import (
    cordon_node,
    drain_node,
    interrupt_node,
    node_emptied,
    nodes_emptied,
    terminate_node,
    uncordon_node,
)
from pools.services.pools import (
    check_nodes_desired,
    create_pool,
    delete_pool,
    drain_pool,
    edit_pool,
    pause_pool,
    preview_edit,
    resume_pool,
    retry_pool,
    set_nodes_desired,
)
from pools.services.pressure import report_pressure
from pools.services.releases import Offer, give_back, offer

__all__ = [
    "Offer",
    "call",
    "check_nodes_desired",
    "cordon_node",
    "create_pool",
    "delete_pool",
    "drain_node",
    "drain_pool",
    "edit_pool",
    "give_back",
    "interrupt_node",
    "issue_join_token",
    "join",
    "leave",
    "node_emptied",
    "nodes_emptied",
    "offer",
    "pause_pool",
    "preview_edit",
    "remove_machine",
    "report_pressure",
    "resume_pool",
    "retry_pool",
    "revoke_join_token",
    "set_nodes_desired",
    "terminate_node",
    "uncordon_node",
]  # fmt: skip
