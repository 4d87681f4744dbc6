"""Count the nodes that a role cannot use, by obstacle."""

from collections import Counter
from collections.abc import Iterable, Sequence

from berth.core.wording.words import format_count
from scheduler.engine.board.matching import HARD_TAINT_EFFECTS, missing_feature, serves_project, tolerates
from scheduler.engine.model import IMAGES, ISOLATION, SHARED_GPUS, VOLUME, Node, NodeState, Role, Taint
from scheduler.engine.plan import Numbers

MAX_OBSTACLES = 6  # maximum number of obstacles per message, most frequent first
_FEATURES = {IMAGES: "run images", ISOLATION: "isolate pods", SHARED_GPUS: "share GPUs between pods"}
_STATES = {NodeState.CORDONED: "cordon", NodeState.DRAINING: "drain"}

Obstacle = tuple[str, str]  # kind and description of an obstacle


def mismatch_numbers(
    role: Role, nodes: Sequence[Node], new_nodes: Iterable[tuple[Node, int]] = (), project: str = ""
) -> Numbers:
    """Return the figures for a blocker about nodes that the role cannot use, including a count per obstacle.

    `new_nodes` lists nodes that the pool could add. `project` is the role's project.
    """
    obstacles = Counter(
        result for node in nodes if (result := _node_obstacle(role, node, project)) is not None
    )
    new = Counter(result for node, _ in new_nodes if (result := _node_obstacle(role, node)) is not None)
    by_kind = Counter[str]()
    for (kind, _), count in obstacles.items():
        by_kind[kind] += count
    return {
        "role": role.name,
        "nodes": len(nodes),
        "obstacles": _obstacles_sentence(obstacles, new),
        **{f"by_{kind}": by_kind[kind] for kind in sorted(by_kind)},
    }


def _node_obstacle(role: Role, node: Node, project: str = "") -> Obstacle | None:
    """Return the longest-lasting obstacle that prevents the role from using the node, or None."""
    if role.gpu_models and node.gpu_model not in role.gpu_models:
        return "model", f"GPU model {' or '.join(role.gpu_models)}"
    for key, value in sorted(role.node_selector.items()):
        if node.labels.get(key) != value:
            return "label", f"label {key}={value}"
    for taint in node.taints:
        if taint.effect in HARD_TAINT_EFFECTS and not tolerates(role.tolerations, taint):
            return "taint", f"taint {_format_taint(taint)}"
    feature = missing_feature(role, node) if node.missing_features else ""
    if feature.startswith(VOLUME):
        return "volume", f"volume {feature.removeprefix(VOLUME)}{node.missing_features[feature]}"
    if feature:
        return feature, node.missing_features[feature]
    if node.name in role.avoided_nodes:
        return "failed", ""
    if not serves_project(node, project):
        return "project", node.only_project
    if node.state in _STATES:
        return _STATES[node.state], ""
    return None


def _format_taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _obstacles_sentence(obstacles: Counter[Obstacle], new: Counter[Obstacle]) -> str:
    ordered = sorted(obstacles.items(), key=lambda entry: (-entry[1], entry[0]))
    clauses = [_obstacle_clause(obstacle, count) for obstacle, count in ordered[:MAX_OBSTACLES]]
    left = sum(count for _, count in ordered[MAX_OBSTACLES:])
    if left:
        clauses.append(f"{format_count(left, 'node')} {'has' if left == 1 else 'have'} other obstacles")
    clauses += [_new_node_clause(obstacle) for obstacle in sorted(new)]
    return "; ".join(clauses) or "the pool has no nodes"


def _obstacle_clause(obstacle: Obstacle, count: int) -> str:
    kind, detail = obstacle
    nodes, one = format_count(count, "node"), count == 1
    return {
        "model": f"{nodes} {'lacks' if one else 'lack'} {detail}",
        "label": f"{nodes} {'lacks' if one else 'lack'} {detail}",
        "volume": f"{nodes} {'lacks' if one else 'lack'} {detail}",
        "taint": f"{nodes} {'has' if one else 'have'} the {detail}, which the role does not tolerate",
        "failed": f"{nodes} {'is' if one else 'are'} avoided, because the workload failed there",
        "cordon": f"{nodes} {'is' if one else 'are'} cordoned",
        "drain": f"{nodes} {'is' if one else 'are'} draining",
        IMAGES: f"{nodes} cannot {_FEATURES[IMAGES]} ({detail})",
        ISOLATION: f"{nodes} cannot {_FEATURES[ISOLATION]}, but must ({detail})",
        SHARED_GPUS: f"{nodes} cannot {_FEATURES[SHARED_GPUS]} ({detail})",
        "project": f"{nodes} cannot isolate pods and {'serves' if one else 'serve'} only project {detail}",
    }[kind]


def _new_node_clause(obstacle: Obstacle) -> str:
    kind, detail = obstacle
    if kind in _FEATURES:
        like = "new nodes are expected to be like the current ones"
        return f"{like}, which cannot {_FEATURES[kind]} ({detail})"
    if kind == "taint":
        return f"new nodes would have the {detail}, which the role does not tolerate"
    return f"new nodes would lack {detail}"
