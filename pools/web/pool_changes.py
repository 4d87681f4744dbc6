"""Questions that a user must answer before changed pool settings are saved."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_count, format_mib
from pools import selectors
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.scale_down import NodeToDrain

MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Dialog about a change. `token` identifies the change, so that a confirmation applies only to this
    change.
    """

    title: str
    texts: Sequence[str]
    label: str
    token: str
    names: str = ""
    entries: Sequence[object] = ()
    more: int = 0


def confirmation_for(
    pool: NodePool, edited: NodePool, nodes_to_drain: Sequence[NodeToDrain]
) -> Confirmation | None:
    """Return the question to ask before the edited pool is saved, or None if its nodes are not affected."""
    nodes = Node.objects.filter(pool=pool).exclude(state=NodeState.ENDED)
    count = nodes.count()
    reductions = list(_reductions(pool, edited)) if count else []
    if not nodes_to_drain and not reductions:
        return None
    token = f"{edited.nodes_desired}/{edited.gpus_per_node}/{edited.cpu_milli}/{edited.memory_mib}"
    texts = [_describe_reductions(reductions, count)] if reductions else []
    if nodes_to_drain:
        return Confirmation(
            f"Reduce {pool} to {format_count(edited.nodes_desired, 'node')}?",
            texts,
            "Save and drain nodes",
            token,
            "Nodes to drain, with their current workloads",
            nodes_to_drain[:MAX_LISTED],
            max(0, len(nodes_to_drain) - MAX_LISTED),
        )
    entries = _nodes_with_workloads(nodes)
    return Confirmation(
        f"Reduce the hardware of {pool}?",
        texts,
        "Save settings",
        token,
        "Nodes in use, with their current workloads" if entries else "",
        entries[:MAX_LISTED],
        max(0, len(entries) - MAX_LISTED),
    )


def _reductions(pool: NodePool, edited: NodePool) -> Iterator[str]:
    """Describe each reduction of the hardware per node, such as "4 instead of 8 GPUs"."""
    if edited.gpus_per_node < pool.gpus_per_node:
        yield f"{edited.gpus_per_node} instead of {format_count(pool.gpus_per_node, 'GPU')}"
    if edited.cpu_milli < pool.cpu_milli:
        yield f"{edited.cpu_milli / MILLI:g} instead of {pool.cpu_milli / MILLI:g} CPU cores"
    if edited.memory_mib < pool.memory_mib:
        yield f"{format_mib(edited.memory_mib)} instead of {format_mib(pool.memory_mib)} of memory"


def _describe_reductions(reductions: Sequence[str], count: int) -> str:
    current = "The current node keeps its" if count == 1 else f"The {count} current nodes keep their"
    return (
        f"New nodes will have {', '.join(reductions)}. {current} hardware until replaced. After that, "
        "workloads that need more on one node stay pending."
    )


def _nodes_with_workloads(nodes: QuerySet[Node]) -> list[str]:
    rows = list(nodes.select_related("pool").order_by("ordinal"))
    workloads = selectors.workloads_on_nodes([node.pk for node in rows])
    return [f"{node.name}: {'; '.join(map(str, workloads[node.pk]))}" for node in rows if workloads[node.pk]]
