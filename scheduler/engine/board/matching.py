"""Match roles to nodes by labels, taints, features, GPU model and device memory."""

from collections.abc import Hashable, Sequence
from operator import attrgetter

from berth.core.values.amounts import MILLI
from scheduler.engine.model import ISOLATION, Node, Role, Taint, Toleration

HARD_TAINT_EFFECTS = ("NoSchedule", "NoExecute")


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.operator == "Exists":
            if not toleration.key or toleration.key == taint.key:
                return True
        elif toleration.key == taint.key and toleration.value == taint.value:
            return True
    return False


def serves_project(node: Node, project: str) -> bool:
    return not project or node.only_project in ("", project)


def matches(role: Role, node: Node) -> bool:
    return meets_constraints(role, node) and node.gpu_memory_mib >= role.request.gpu_memory_mib


def meets_constraints(role: Role, node: Node) -> bool:
    """Return whether the node has the role's labels, features and GPU model, and no untolerated taint."""
    return (
        node.name not in role.avoided_nodes
        and not (node.missing_features and missing_feature(role, node))
        and all(node.labels.get(key) == value for key, value in role.node_selector.items())
        and (not role.gpu_models or node.gpu_model in role.gpu_models)
        and not any(
            taint.effect in HARD_TAINT_EFFECTS and not tolerates(role.tolerations, taint)
            for taint in node.taints
        )
    )


def missing_feature(role: Role, node: Node) -> str:
    """Return the first feature that the role requires and the node lacks, or an empty string."""
    return next((feature for feature in (ISOLATION, *role.requires) if feature in node.missing_features), "")


def should_avoid(role: Role, node: Node) -> bool:
    """Return whether the node has a soft taint that the role does not tolerate.

    Such a node is used only if no other node fits.
    """
    return any(
        taint.effect not in HARD_TAINT_EFFECTS and not tolerates(role.tolerations, taint)
        for taint in node.taints
    )


def node_constraints(role: Role) -> Hashable:
    """Return a key shared by roles that match the same nodes."""
    selector = role.node_selector
    return (
        tuple(sorted(selector.items())) if selector else (),
        role.gpu_models,
        role.tolerations,
        role.request.gpu_memory_mib,
        role.requires,
        role.avoided_nodes,
    )


class Matcher:
    """Cache of the nodes that match each distinct set of role constraints.

    If no `project` is given, nodes that serve only one project also match.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._masks: dict[Hashable, bytes | None] = {}
        self._avoid_masks: dict[Hashable, bytes | None] = {}
        self._has_no_taints = not any(map(attrgetter("taints"), nodes))
        self.has_reserved_nodes = any(map(attrgetter("only_project"), nodes))
        self._accepts_all = self._has_no_taints and not (
            self.has_reserved_nodes or any(map(attrgetter("missing_features"), nodes))
        )
        self._millis: dict[Hashable, tuple[int, int]] = {}

    def has_no_constraints(self, role: Role) -> bool:
        """Return whether the role can use every node and avoids none."""
        return (
            self._accepts_all
            and not role.node_selector
            and not role.gpu_models
            and not role.request.gpu_memory_mib
            and not role.avoided_nodes
        )

    def mask(self, role: Role, min_memory_mib: int = 0, project: str = "") -> bytes | None:
        """Return a mask of the matching nodes, or None if all nodes match.

        Devices must have at least `min_memory_mib` MiB of memory.
        """
        if not min_memory_mib and self.has_no_constraints(role):
            return None
        min_memory_mib = max(min_memory_mib, role.request.gpu_memory_mib)
        key = node_constraints(role), min_memory_mib, project
        if key not in self._masks:
            mask = bytes(
                matches(role, node)
                and node.gpu_memory_mib >= min_memory_mib
                and serves_project(node, project)
                for node in self._nodes
            )
            self._masks[key] = None if all(mask) else mask
        return self._masks[key]

    def avoid_mask(self, role: Role) -> bytes | None:
        """Return a mask of the nodes to use only if no other node fits, or None if there are no such
        nodes.
        """
        if self._has_no_taints:
            return None
        key = node_constraints(role)
        if key not in self._avoid_masks:
            mask = bytes(should_avoid(role, node) for node in self._nodes)
            self._avoid_masks[key] = mask if any(mask) else None
        return self._avoid_masks[key]

    def share_milli_on_smallest_device(self, role: Role, min_memory_mib: int = 0, project: str = "") -> int:
        """Return the fraction of the smallest matching device that the role requests, in thousandths."""
        return self._largest_and_smallest_share_milli(role, min_memory_mib, project)[0]

    def share_milli_on_largest_device(self, role: Role, project: str = "") -> int:
        """Return the fraction of the largest matching device that the role requests, in thousandths."""
        return self._largest_and_smallest_share_milli(role, 0, project)[1]

    def _largest_and_smallest_share_milli(
        self, role: Role, min_memory_mib: int, project: str
    ) -> tuple[int, int]:
        key, requested = (node_constraints(role), min_memory_mib, project), role.request.gpu_memory_mib
        if key not in self._millis:
            mask = self.mask(role, min_memory_mib, project)
            open_nodes = (node for i, node in enumerate(self._nodes) if mask is None or mask[i])
            memory_sizes = [
                node.gpu_memory_mib for node in open_nodes if node.gpus and node.gpu_memory_mib >= requested
            ]
            self._millis[key] = (
                (-(-MILLI * requested // min(memory_sizes)), -(-MILLI * requested // max(memory_sizes)))
                if memory_sizes
                else (MILLI, MILLI)
            )
        return self._millis[key]

    def larger_memory_sizes(self) -> list[int]:
        """Return the distinct device memory sizes in MiB, except the smallest."""
        return sorted({node.gpu_memory_mib for node in self._nodes if node.gpus})[1:]
