"""Problems that a pool's diagnosis can report."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from berth.core.backports import StrEnum
from berth.core.wording.words import format_count
from pools.models import Node, NodePool
from pools.models.node import HOSTING, NodeState

MAX_NAMED = 3


class Severity(StrEnum):
    ERROR = "error"  # the pool cannot run workloads
    WARNING = "warning"  # part of the pool is unusable, or will be soon
    NOTE = "note"  # the situation is intended, but may be surprising


class RemedyForm(StrEnum):
    """Form or page where an admin can apply the remedy."""

    RETRY = "retry"
    RESUME = "resume"
    MAXIMUM = "maximum"  # the pool's maximum number of nodes, on its settings page
    SETTINGS = "settings"
    UNCORDON = "uncordon"
    NODES = "nodes"  # the node's page, or the list of the pool's affected nodes
    MACHINES = "machines"
    HOSTS = "hosts"
    QUEUE = "queue"
    IDLE = "idle"  # the list of the pool's running workloads
    QUOTAS = "quotas"


@dataclass(frozen=True, slots=True)
class Finding:
    """Problem with a pool.

    `finding` is a sentence with numbers, and `remedy` is the recommended action, or empty. `fix` applies to
    all of `nodes`.
    """

    severity: Severity
    name: str
    finding: str
    remedy: str = ""
    fix: RemedyForm | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """Pool and its nodes at one point in time."""

    pool: NodePool
    nodes: Sequence[Node]
    now: datetime

    def nodes_in_states(self, *states: NodeState) -> list[Node]:
        return [node for node in self.nodes if node.state in states]

    @property
    def hosting_nodes(self) -> list[Node]:
        return self.nodes_in_states(*HOSTING)


Check = Callable[[PoolFacts], Iterator[Finding]]


def format_node_names(rows: Sequence[Node]) -> str:
    names = [node.name for node in rows[:MAX_NAMED]]
    more = len(rows) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def node_names(rows: Iterable[Node]) -> tuple[str, ...]:
    return tuple(node.name for node in rows)


def is_or_are(rows: Sequence[Node]) -> str:
    return "is" if len(rows) == 1 else "are"


def has_or_have(rows: Sequence[Node]) -> str:
    return "has" if len(rows) == 1 else "have"


def format_gpus_or_cpus(rows: Sequence[Node]) -> str:
    gpus = sum(node.gpus for node in rows)
    return format_count(gpus, "GPU") if gpus else f"{sum(node.cpu_milli for node in rows) / 1000:g} CPUs"


def to_sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?")) else f"{text}."


def format_age(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    if seconds < 120:
        return format_count(seconds, "second")
    if seconds < 2 * 3600:
        return format_count(seconds // 60, "minute")
    return format_count(seconds // 3600, "hour")
