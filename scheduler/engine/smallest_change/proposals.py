"""Proposed changes and their sizes.

The proposals for one amount are sorted by size, smallest change first.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from berth.core.values.amounts import MILLI
from scheduler.engine.smallest_change.change import Change, ChangeKind

_ORDER = {kind: number for number, kind in enumerate(ChangeKind)}
MAX_PROPOSALS = 64  # maximum number of proposals for one amount
_ROUND = [digit * 10**power for power in range(12) for digit in (1, 2, 5)]
PARTS = 8  # each proposal changes an amount by at most one eighth

Size = tuple[int, Fraction | int, str, str]
Proposal = tuple[Size, Change]
# Smallest change first. If a change starts the workload, so does each larger change.
Proposals = Sequence[Proposal]


def sized_proposal(change: Change, amount: Fraction | int = 0) -> Proposal:
    """Return the change with a sort key: its kind, its size `amount`, and its names."""
    return (_ORDER[change.kind], amount, change.subject, f"{change.resource} {change.after}"), change


def single_proposal(change: Change, amount: int = 0) -> Proposals:
    return [sized_proposal(change, amount)]


def ranked_proposals(changes: Iterable[Change]) -> Proposals:
    """Return a proposal for each change. The changes must be sorted, and proposals keep this order."""
    return [sized_proposal(change, rank) for rank, change in enumerate(changes)]


def propose_decreases(amount: int, resource: str, least: int, change: Callable[[int], Change]) -> Proposals:
    """Propose lowering `amount` in round steps down to `least`."""
    return _propose_amounts(amount, _step_multiples(amount, least, step_size(amount, resource)), change)


def propose_halvings(amount: int, resource: str, most: int, change: Callable[[int], Change]) -> Proposals:
    """Propose lowering `amount` to round amounts below `most`, down to one unit."""
    amounts = list[int]()
    while most > 1:
        least = max(1, most // 2)
        amounts += _step_multiples(most, least, step_size(most, resource))
        most = least
    return _propose_amounts(amount, amounts, change)


def _step_multiples(most: int, least: int, step: int) -> range:
    """Return up to MAX_PROPOSALS multiples of `step` that are at least `least` and below `most`, largest
    first.
    """
    return range((most - 1) // step * step, least - 1, -step)[:MAX_PROPOSALS]


def _propose_amounts(amount: int, amounts: Iterable[int], change: Callable[[int], Change]) -> Proposals:
    return [sized_proposal(change(after), Fraction(amount - after, amount)) for after in amounts]


def propose_increases(
    amount: int, resource: str, targets: Sequence[int], change: Callable[[int], Change]
) -> Proposals:
    """Propose raising `amount` to each target, and to round amounts below the largest target."""
    missing = max(targets) - amount
    step = step_size(missing, resource)
    step *= -(-missing // (step * MAX_PROPOSALS))
    amounts = sorted({*range(amount + step, max(targets), step), *targets})
    return [sized_proposal(change(after), Fraction(after - amount, after)) for after in amounts]


def step_size(amount: int, resource: str) -> int:
    """Return a round step size: whole units for counts and devices, else at most an eighth of the amount."""
    if resource in ("replicas", "devices"):
        return max(1, amount // MAX_PROPOSALS)
    if resource == "gpu" and amount % MILLI == 0:
        return MILLI
    most = max(1, amount // PARTS)
    bases = [1 << most.bit_length() - 1] if resource.endswith("memory_mib") else _ROUND
    return max(base for base in bases if base <= most)
