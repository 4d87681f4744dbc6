"""Choose the nodes to drain, starting with those that would lose the least work."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pools.engine.budgets import Allowance, DisruptionReason

HEAD = 0


class LostWork(NamedTuple):
    """Work that would be lost if a node were drained. Comparisons order it by amount.

    `non_preemptible` is the number of pods that block a drain. Seconds are measured from the last checkpoint
    or the start of the pod, whichever is later.
    """

    non_preemptible: int = 0
    gpu_seconds: int = 0
    cpu_seconds: int = 0
    pods: int = 0


NO_WORK = LostWork()


def choose_victims(
    current: Collection[int], count: int, work_to_lose: Mapping[int, LostWork], *, include_head: bool = False
) -> tuple[int, ...]:
    """Return up to `count` nodes to drain: least work first, then highest ordinal.

    If `include_head` is set, the head node comes last.
    """
    candidates = set(current) - {HEAD}
    ordered = sorted(candidates, key=lambda ordinal: (work_to_lose.get(ordinal, NO_WORK), -ordinal))
    chosen = ordered[: max(count, 0)]
    return (*chosen, HEAD) if include_head and HEAD in current else tuple(chosen)


def split_by_budget(
    chosen: Collection[int], work_to_lose: Mapping[int, LostWork], allowance: Allowance
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the chosen nodes into nodes that may be drained now, and nodes that must wait for a budget."""
    drainable: list[int] = []
    blocked: list[int] = []
    for ordinal in chosen:
        is_allowed = allowance.allows(disruption_reason(work_to_lose.get(ordinal, NO_WORK)), len(drainable))
        (drainable if is_allowed else blocked).append(ordinal)
    return tuple(drainable), tuple(blocked)


def disruption_reason(work: LostWork) -> DisruptionReason:
    return DisruptionReason.UNDERUTILIZED if work.pods else DisruptionReason.EMPTY
