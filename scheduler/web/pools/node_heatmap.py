"""Heatmap of all nodes in a large pool, coloured by allocation."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt

from django.db.models import F, Sum

from berth.core.amounts import MILLI
from berth.core.words import counted
from pools.models import Node, NodePool
from pools.models.node import ALIVE, NodeState
from scheduler.models import Allocation

CELL, GAP = 10, 2
WIDEST = 100  # maximum squares per row
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
class Tone:
    """Nodes of one colour, drawn as one path."""

    kind: str
    title: str
    nodes: int
    path: str


@dataclass(frozen=True, slots=True)
class Mosaic:
    """Squares for all nodes, row by row in the order of ordinals."""

    width: int
    height: int
    tones: tuple[Tone, ...]
    label: str


def mosaic_of(pool: NodePool) -> Mosaic:
    """Build the heatmap with two queries."""
    nodes = Node.objects.filter(pool=pool, state__in=ALIVE).order_by("ordinal", "pk")
    rows = list(nodes.values_list("pk", "state", "gpus", "cpu_milli"))
    held, columns = _allocated_by_node(pool), min(WIDEST, max(1, ceil(sqrt(4 * len(rows)))))
    squares: dict[str, list[str]] = defaultdict(list)
    for place, (pk, state, gpus, cpu) in enumerate(rows):
        gpu_held, cpu_held = held.get(pk, (0, 0))
        part = (gpu_held, gpus * MILLI) if gpus else (cpu_held, cpu)
        row, column = divmod(place, columns)
        squares[_tone_kind(state, *part)].append(f"M{column * CELL} {row * CELL}{_SQUARE}")
    tones = [Tone(kind, title, len(squares[kind]), "".join(squares[kind])) for kind, title in TITLES.items()
             if squares[kind]]  # fmt: skip
    summary = ", ".join(f"{tone.nodes} {tone.title}" for tone in tones)
    return Mosaic(columns * CELL, ceil(len(rows) / columns) * CELL, tuple(tones),
                  f"{counted(len(rows), 'node')}: {summary}")  # fmt: skip


_SQUARE = f"h{CELL - GAP}v{CELL - GAP}h-{CELL - GAP}z"


def _allocated_by_node(pool: NodePool) -> Mapping[int, tuple[int, int]]:
    """Return milli-GPU and milli-CPU by node."""
    active = Allocation.objects.filter(node__pool=pool, released_at__isnull=True).order_by()
    sums = active.values_list("node_id").annotate(
        gpu=Sum(F("gpu_milli") * F("devices__len")), cpu=Sum("cpu_milli")
    )
    return {node: (gpu or 0, cpu or 0) for node, gpu, cpu in sums}


def _tone_kind(state: str, held: int, whole: int) -> str:
    if state != NodeState.READY:
        return BY_STATE[NodeState(state)]
    if not held:
        return "free"
    return "full" if held >= whole else "most" if 2 * held > whole else "some"
