"""Topology domains: groups of nodes, such as a rack or a zone, that a gang must stay within."""

from collections.abc import Sequence
from functools import cached_property

from scheduler.engine.board.gang import (
    BoardRole,
    Gang,
    ReplicaRequest,
    Scope,
    enclosing_scopes,
    smallest_request,
)
from scheduler.engine.board.nodes import Nodes


class Topology:
    """Topology domains of a pool's nodes, by level.

    A node without the level's label is in no domain. Racks in different zones are different domains, even
    with the same name.
    """

    def __init__(self, levels: Sequence[str], nodes: Nodes) -> None:
        self._levels, self._nodes = tuple(levels), nodes
        self._domains: dict[str, dict[tuple[str, ...], frozenset[int]]] = {}

    def domains(self, level: str) -> dict[tuple[str, ...], frozenset[int]]:
        """Return the nodes of each domain, keyed by the labels of this level and the levels above it."""
        if level not in self._domains:
            path, result = self._level_path(level), dict[tuple[str, ...], set[int]]()
            for i, node in enumerate(self._nodes.nodes):
                if level in node.labels:
                    result.setdefault(tuple(node.labels.get(key, "") for key in path), set()).add(i)
            self._domains[level] = {key: frozenset(result[key]) for key in sorted(result)}
        return self._domains[level]

    def _level_path(self, level: str) -> tuple[str, ...]:
        if level in self._levels:
            return self._levels[: self._levels.index(level) + 1]
        return (level,)

    def domain_by_node(self, level: str) -> dict[int, frozenset[int]]:
        """Return each node's domain. Nodes that belong to no domain are omitted."""
        return {i: nodes for nodes in self.domains(level).values() for i in nodes}

    def node_domain(self, level: str, i: int) -> frozenset[int]:
        """Return the nodes of the domain that contains node `i`, or an empty set if no domain contains it."""
        return next((nodes for nodes in self.domains(level).values() if i in nodes), frozenset())

    @cached_property
    def all_nodes(self) -> frozenset[int]:
        return frozenset(range(len(self._nodes.nodes)))

    def candidate_domains(
        self, level: str, scope: Scope, within: frozenset[int], needs: Sequence[ReplicaRequest]
    ) -> list[frozenset[int]]:
        """Return the domains that may have room for all of the scope's pods, fullest first.

        If some pods are already placed, only their domain qualifies.
        """
        occupied = {self._nodes.index[pod.node] for part in scope.parts for pod in part.live.values()}
        gpus, _, _ = smallest_request(needs)
        fitting = []
        for key, domain in self.domains(level).items():
            inside = domain & within
            free = sum(max(0, self._nodes.gpu[i]) for i in inside)
            if inside and occupied <= domain and free >= gpus:
                fitting.append((free, key, inside))
        return [inside for _, _, inside in sorted(fitting, key=lambda entry: entry[:2])]

    def allowed_nodes(self, gang: Gang, part: BoardRole) -> frozenset[int] | None:
        """Return the nodes on which topology constraints allow a pod of the role, given the pods already
        placed. None means all nodes.
        """
        allowed_nodes: frozenset[int] | None = None
        for scope in enclosing_scopes(gang, part):
            placed_pod = next((pod for other in scope.parts for pod in other.live.values()), None)
            if scope.constraint.required is not None and placed_pod is not None:
                domain = self.node_domain(scope.constraint.required, self._nodes.index[placed_pod.node])
                allowed_nodes = domain if allowed_nodes is None else allowed_nodes & domain
        return allowed_nodes
