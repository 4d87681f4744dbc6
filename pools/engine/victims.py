"""Choose the nodes to drain: those with the least work to lose."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pools.engine.budgets import Allowance, DisruptionReason

HEAD = 0


class Work(NamedTuple):
    """Pods running or reserved on a node, ordered by the work that a drain would lose.

    A drain waits indefinitely for `non_preemptible` pods. Seconds are counted from the start or the last
    checkpoint.
    """

    non_preemptible: int = 0
    gpu_seconds: int = 0
    cpu_seconds: int = 0
    pods: int = 0


NONE = Work()


def victims(
    current: Collection[int], count: int, work_to_lose: Mapping[int, Work], *, head_too: bool = False
) -> tuple[int, ...]:
    """Return `count` nodes in drain order: least work first, then highest ordinal, and the head last."""
    candidates = set(current) - {HEAD}
    ordered = sorted(candidates, key=lambda ordinal: (work_to_lose.get(ordinal, NONE), -ordinal))
    chosen = ordered[: max(count, 0)]
    return (*chosen, HEAD) if head_too and HEAD in current else tuple(chosen)


def allowed(
    chosen: Collection[int], work_to_lose: Mapping[int, Work], allowance: Allowance
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the chosen nodes into those that may be drained now and those that a budget blocks."""
    going: list[int] = []
    blocked: list[int] = []
    for ordinal in chosen:
        may = allowance.allows(reason_of(work_to_lose.get(ordinal, NONE)), len(going))
        (going if may else blocked).append(ordinal)
    return tuple(going), tuple(blocked)


def reason_of(work: Work) -> DisruptionReason:
    return DisruptionReason.UNDERUTILISED if work.pods else DisruptionReason.EMPTY
