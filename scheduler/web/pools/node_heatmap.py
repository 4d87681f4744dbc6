"""Heatmap of all nodes in a large pool, coloured by allocation."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt

from django.db.models import F, Sum

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_count
from pools.models import Node, NodePool
from pools.models.node import ALIVE, NodeState
from scheduler.models import Allocation

CELL, GAP = 10, 2
MAX_COLUMNS = 100  # maximum number of squares per row
TITLES = {
    "full": "full",
    "most": "more than half allocated",
    "some": "up to half allocated",
    "free": "free",
    "cordoned": "cordoned",
    "draining": "draining",
    "coming": "pending",
    "lost": "lost",
}
BY_STATE = {
    NodeState.REQUESTED: "coming",
    NodeState.BOOTING: "coming",
    NodeState.CORDONED: "cordoned",
    NodeState.DRAINING: "draining",
    NodeState.LOST: "lost",
}


@dataclass(frozen=True, slots=True)
class HeatmapTone:
    """All nodes of one colour, drawn as a single SVG path."""

    kind: str
    title: str
    nodes: int
    path: str


@dataclass(frozen=True, slots=True)
class NodeHeatmap:
    """Heatmap with one square per node, row by row in ordinal order."""

    width: int
    height: int
    tones: tuple[HeatmapTone, ...]
    label: str


def build_heatmap(pool: NodePool) -> NodeHeatmap:
    nodes = Node.objects.filter(pool=pool, state__in=ALIVE).order_by("ordinal", "pk")
    rows = list(nodes.values_list("pk", "state", "gpus", "cpu_milli"))
    allocated, columns = _allocated_by_node(pool), min(MAX_COLUMNS, max(1, ceil(sqrt(4 * len(rows)))))
    squares: dict[str, list[str]] = defaultdict(list)
    for place, (pk, state, gpus, cpu) in enumerate(rows):
        allocated_gpu, allocated_cpu = allocated.get(pk, (0, 0))
        part = (allocated_gpu, gpus * MILLI) if gpus else (allocated_cpu, cpu)
        row, column = divmod(place, columns)
        squares[_tone_kind(state, *part)].append(f"M{column * CELL} {row * CELL}{_SQUARE}")
    tones = [
        HeatmapTone(kind, title, len(squares[kind]), "".join(squares[kind]))
        for kind, title in TITLES.items()
        if squares[kind]
    ]
    summary = ", ".join(f"{tone.nodes} {tone.title}" for tone in tones)
    return NodeHeatmap(columns * CELL, ceil(len(rows) / columns) * CELL, tuple(tones),
                  f"{format_count(len(rows), 'node')}: {summary}")  # fmt: skip


_SQUARE = f"h{CELL - GAP}v{CELL - GAP}h-{CELL - GAP}z"


def _allocated_by_node(pool: NodePool) -> Mapping[int, tuple[int, int]]:
    """Return the allocated milli-GPU and milli-CPU, keyed by node ID."""
    active = Allocation.objects.filter(node__pool=pool, released_at__isnull=True).order_by()
    sums = active.values_list("node_id").annotate(
        gpu=Sum(F("gpu_milli") * F("devices__len")), cpu=Sum("cpu_milli")
    )
    return {node: (gpu or 0, cpu or 0) for node, gpu, cpu in sums}


def _tone_kind(state: str, allocated: int, whole: int) -> str:
    if state != NodeState.READY:
        return BY_STATE[NodeState(state)]
    if not allocated:
        return "free"
    return "full" if allocated >= whole else "most" if 2 * allocated > whole else "some"
