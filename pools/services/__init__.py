"""Functions that change pools and nodes."""

from pools.services.joining import join, leave, record_report
from pools.services.machines import issue_join_token, remove_machine, revoke_join_token
from pools.services.nodes import (
    cordon_node,
    drain_node,
    interrupt_node,
    mark_node_emptied,
    mark_nodes_emptied,
    terminate_node,
    uncordon_node,
)
from pools.services.pools import (
    check_new_pool,
    check_nodes_desired,
    create_pool,
    delete_pool,
    drain_pool,
    edit_pool,
    pause_pool,
    preview_edit,
    preview_pool,
    resume_pool,
    retry_pool,
    set_nodes_desired,
)
from pools.services.pressure import report_pressure
from pools.services.releases import ReleasableNodes, releasable_nodes, release_pool_nodes
from pools.services.upgrades import AgentRelease, release_to_install, upgrade_agent

__all__ = [
    "AgentRelease",
    "ReleasableNodes",
    "check_new_pool",
    "check_nodes_desired",
    "cordon_node",
    "create_pool",
    "delete_pool",
    "drain_node",
    "drain_pool",
    "edit_pool",
    "interrupt_node",
    "issue_join_token",
    "join",
    "leave",
    "mark_node_emptied",
    "mark_nodes_emptied",
    "pause_pool",
    "preview_edit",
    "preview_pool",
    "record_report",
    "releasable_nodes",
    "release_pool_nodes",
    "release_to_install",
    "remove_machine",
    "report_pressure",
    "resume_pool",
    "retry_pool",
    "revoke_join_token",
    "set_nodes_desired",
    "terminate_node",
    "uncordon_node",
    "upgrade_agent",
]  # fmt: skip
