"""Find the nodes that a role may use, without the engine's own logic."""

from scheduler.engine.model import Node, Role
from tests.engine.reference.invariants.placement import _is_tolerated as is_tolerated


def matches(role: Role, node: Node, project: str) -> bool:
    return (
        all(node.labels.get(key) == value for key, value in role.node_selector.items())
        and (not role.gpu_models or node.gpu_model in role.gpu_models)
        and all(is_tolerated(taint, role.tolerations) for taint in node.taints)
        and node.gpu_memory_mib >= role.request.gpu_memory_mib
        and not node.missing_features.keys() & {"isolation", *role.requires}
        and node.only_project in ("", project)
    )
