"""Fit a table to the width of the terminal: shorten, drop, then truncate columns."""

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
CUT_TO = 16  # with so many letters a cell that is cut is still of use


@dataclass(frozen=True, slots=True)
class Wish:
    """What a column needs: its longest cell, and the longest of them written shorter, if they can be."""

    width: int
    brief: int | None = None
    spare: bool = False
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A column that is shown; `cut`: no more letters than these."""

    column: int
    brief: bool = False
    cut: int | None = None


def fitted(wishes: Sequence[Wish], room: int) -> list[Place]:
    """Of the spare columns the last go first; of the others the widest is cut."""
    kept, brief = list(range(len(wishes))), False

    def needed(at: int) -> int:
        wish = wishes[at]
        width = wish.brief if brief and wish.brief is not None else wish.width
        return min(width, CUT_TO) if wish.grows else width

    def over() -> int:
        return sum(needed(at) + GAP for at in kept) - GAP - room

    if over() > 0:
        brief = True
    for at in reversed(range(len(wishes))):
        if over() > 0 and wishes[at].spare:
            kept.remove(at)
    cuts: dict[int, int] = {}
    fixed = [at for at in kept if not wishes[at].grows]
    if over() > 0 and fixed:
        widest = max(fixed, key=lambda at: (needed(at), -at))
        cuts[widest] = max(min(CUT_TO, needed(widest)), needed(widest) - over())
    return [Place(at, brief and wishes[at].brief is not None, cuts.get(at)) for at in kept]
